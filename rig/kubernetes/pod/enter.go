package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// By number, as the kernel has them.
var capabilities = strings.Fields(`chown dac_override dac_read_search fowner fsetid kill setgid setuid setpcap linux_immutable
	net_bind_service net_broadcast net_admin net_raw ipc_lock ipc_owner sys_module sys_rawio sys_chroot sys_ptrace sys_pacct
	sys_admin sys_boot sys_nice sys_resource sys_time sys_tty_config mknod lease audit_write audit_control setfcap mac_override
	mac_admin syslog wake_alarm block_suspend audit_read perfmon bpf checkpoint_restore`)

const (
	prCapbsetDrop   = 24
	prSetNoNewPrivs = 38
	prCapAmbient    = 47
	ambientClearAll = 4
)

// enter ROOT USER GROUP GROUPS CAPABILITIES NO-NEW-PRIVILEGES PROGRAM ARGUMENT...: becomes a program below another root, with no
// more rights than these. Lists have commas; all capabilities are "all". What the container may do is in no file below that root.
func enter(arguments []string) error {
	if len(arguments) < 7 {
		return fmt.Errorf("enter: %d arguments are too few", len(arguments))
	}
	root, kept, noNew, line := arguments[0], arguments[4], arguments[5], arguments[6:]
	user, err := strconv.Atoi(arguments[1])
	if err != nil {
		return err
	}
	group, err := strconv.Atoi(arguments[2])
	if err != nil {
		return err
	}
	var groups []int
	for _, text := range strings.FieldsFunc(arguments[3], func(it rune) bool { return it == ',' }) {
		number, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		groups = append(groups, number)
	}
	// Capabilities are of a thread, and the one that executes is what is left.
	runtime.LockOSThread()
	if err := syscall.Chroot(root); err != nil {
		return fmt.Errorf("%s: %w", root, err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	if kept != "all" {
		keep := map[string]bool{}
		for _, name := range strings.Split(kept, ",") {
			keep[name] = true
		}
		for number, name := range capabilities {
			if keep[name] {
				continue
			}
			// An old kernel does not know the last ones.
			if _, _, fault := syscall.RawSyscall(syscall.SYS_PRCTL, prCapbsetDrop, uintptr(number), 0); fault != 0 && fault != syscall.EINVAL {
				return fmt.Errorf("cap_%s: %w", name, fault)
			}
		}
	}
	syscall.RawSyscall6(syscall.SYS_PRCTL, prCapAmbient, ambientClearAll, 0, 0, 0, 0)
	if noNew == "true" {
		if _, _, fault := syscall.RawSyscall6(syscall.SYS_PRCTL, prSetNoNewPrivs, 1, 0, 0, 0, 0); fault != 0 {
			return fmt.Errorf("no_new_privs: %w", fault)
		}
	}
	if err := syscall.Setgroups(groups); err != nil {
		return err
	}
	if err := syscall.Setgid(group); err != nil {
		return err
	}
	if err := syscall.Setuid(user); err != nil {
		return err
	}
	return fmt.Errorf("%s: %w", line[0], syscall.Exec(line[0], line, os.Environ()))
}
