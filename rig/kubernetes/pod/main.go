// Command pod is what runs in the pods of tests. Its images are its first argument:
//
//	pod web [PORT]      over HTTP, the pod's name and the client's address; a line of log for each request
//	pod tcp [PORT]      greets with the pod's name, then says back what it hears
//	pod udp [PORT]      says back what it hears, after the pod's name
//	pod stubborn        does not end when it is asked to
//	pod enter …         is no image: it becomes a program of one that is unpacked (enter.go)
//
// Paths of web: /slow?for=2s answers later; /status/503 with that status; POST /unready and POST /ready decide what
// GET /ready answers. Asked to end, it serves on for the time in $LINGER, then finishes what is under way.
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
)

var name = os.Getenv("HOSTNAME")

func main() {
	if len(os.Args) > 1 && os.Args[1] == "enter" {
		fmt.Fprintln(os.Stderr, "pod:", enter(os.Args[2:]))
		os.Exit(1)
	}
	image, port := "", "80"
	if len(os.Args) > 1 {
		image = os.Args[1]
	}
	if len(os.Args) > 2 {
		port = os.Args[2]
	}
	ending := make(chan os.Signal, 1)
	signal.Notify(ending, syscall.SIGTERM, syscall.SIGINT)
	var err error
	switch image {
	case "web":
		err = web(":"+port, ending)
	case "tcp":
		go func() { <-ending; os.Exit(0) }()
		err = tcp(":" + port)
	case "udp":
		go func() { <-ending; os.Exit(0) }()
		err = udp(":" + port)
	case "stubborn":
		fmt.Println("here to stay")
		for range ending {
			fmt.Println("no")
		}
	default:
		err = fmt.Errorf("no image is called %q", image)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "pod:", err)
		os.Exit(1)
	}
}

func web(at string, ending chan os.Signal) error {
	var unready atomic.Bool
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { answer(w, r) })
	mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) {
		length, _ := time.ParseDuration(r.FormValue("for"))
		time.Sleep(length)
		answer(w, r)
	})
	mux.HandleFunc("/status/{status}", func(w http.ResponseWriter, r *http.Request) {
		if status, err := strconv.Atoi(r.PathValue("status")); err == nil && status >= 200 && status < 600 {
			w.WriteHeader(status)
		}
		answer(w, r)
	})
	mux.HandleFunc("POST /unready", func(http.ResponseWriter, *http.Request) { unready.Store(true) })
	mux.HandleFunc("POST /ready", func(http.ResponseWriter, *http.Request) { unready.Store(false) })
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, r *http.Request) {
		if unready.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	listener, err := net.Listen("tcp", at)
	if err != nil {
		return err
	}
	fmt.Println("listening on", listener.Addr())
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Handler: mux, Protocols: protocols}
	ended := make(chan error, 1)
	go func() {
		<-ending
		linger, _ := time.ParseDuration(os.Getenv("LINGER"))
		time.Sleep(linger)
		ended <- server.Shutdown(context.Background())
	}()
	if err := server.Serve(listener); err != http.ErrServerClosed {
		return err
	}
	return <-ended
}

func answer(w http.ResponseWriter, r *http.Request) {
	client, _, _ := net.SplitHostPort(r.RemoteAddr)
	if r.URL.Path != "/ready" {
		fmt.Println(r.Method, r.URL, "from", client)
	}
	fmt.Fprintf(w, "%s %s\n", name, client)
}

func tcp(at string) error {
	listener, err := net.Listen("tcp", at)
	if err != nil {
		return err
	}
	fmt.Println("listening on", listener.Addr())
	for {
		connection, err := listener.Accept()
		if err != nil {
			return err
		}
		fmt.Println("connection from", connection.RemoteAddr())
		go func() {
			defer connection.Close()
			fmt.Fprintln(connection, name)
			io.Copy(connection, bufio.NewReader(connection))
		}()
	}
}

func udp(at string) error {
	socket, err := net.ListenPacket("udp", at)
	if err != nil {
		return err
	}
	fmt.Println("listening on", socket.LocalAddr())
	buffer := make([]byte, 65536)
	for {
		count, from, err := socket.ReadFrom(buffer)
		if err != nil {
			return err
		}
		socket.WriteTo(append([]byte(name+" "), buffer[:count]...), from)
	}
}
