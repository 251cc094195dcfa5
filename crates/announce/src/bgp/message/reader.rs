/// Bytes that are taken from the front.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn chunk<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.chunk().map(|[it]| it)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.chunk().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.chunk().map(u32::from_be_bytes)
    }

    /// So many bytes, as a number of one byte says that stands before them.
    pub(super) fn short(&mut self) -> Option<Reader<'a>> {
        let length = self.u8()?;
        self.take(length.into()).map(Reader)
    }

    pub(super) fn long(&mut self) -> Option<Reader<'a>> {
        let length = self.u16()?;
        self.take(length.into()).map(Reader)
    }
}
