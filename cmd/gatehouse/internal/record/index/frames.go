package index

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// span is a part of a recording file: a zstd frame, which can be read without those before it.
type span struct{ offset, size int64 }

func (s span) end() int64 { return s.offset + s.size }

// frameScanner finds the zstd frames of a file that may grow. It reads the headers of frames and blocks alone.
type frameScanner struct {
	file io.ReaderAt
	// begin is where the current frame begins, and at where the next header is expected.
	begin, at int64
	inFrame   bool
	checksum  int64
}

const blockHeader = 3

// The types of zstd blocks.
const (
	blockRLE      = 1
	blockReserved = 3
)

// errNoFrame is the error for bytes that are no zstd frame.
var errNoFrame = errors.New("it is not compressed with zstd")

// scan returns the frames that have become whole since the last call. Size is that of the file.
func (s *frameScanner) scan(size int64) (whole []span, err error) {
	for s.at < size {
		if !s.inFrame {
			more, err := s.header(size)
			if err != nil || !more {
				return whole, err
			}
			continue
		}
		var header [blockHeader]byte
		if s.at+blockHeader > size {
			return whole, nil
		}
		if _, err := s.file.ReadAt(header[:], s.at); err != nil {
			return whole, fmt.Errorf("read a block: %w", err)
		}
		bits := uint32(header[0]) | uint32(header[1])<<8 | uint32(header[2])<<16
		last, kind, length := bits&1 != 0, bits>>1&3, int64(bits>>3)
		switch kind {
		case blockRLE:
			length = 1
		case blockReserved:
			return whole, errNoFrame
		}
		end := s.at + blockHeader + length
		if last {
			end += s.checksum
		}
		if end > size {
			return whole, nil
		}
		s.at = end
		if last {
			whole = append(whole, span{s.begin, end - s.begin})
			s.begin, s.inFrame = end, false
		}
	}
	return whole, nil
}

// header reads the header of a frame. More is false if it is not whole yet.
func (s *frameScanner) header(size int64) (more bool, err error) {
	buffer := make([]byte, min(zstd.HeaderMaxSize, size-s.at))
	if _, err := s.file.ReadAt(buffer, s.at); err != nil {
		return false, fmt.Errorf("read a frame: %w", err)
	}
	var header zstd.Header
	if err := header.Decode(buffer); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return false, nil
		}
		return false, errNoFrame
	}
	if header.Skippable {
		end := s.at + int64(header.HeaderSize) + int64(header.SkippableSize)
		if end > size {
			return false, nil
		}
		s.begin, s.at = end, end
		return true, nil
	}
	const checksum = 4
	s.checksum = 0
	if header.HasCheckSum {
		s.checksum = checksum
	}
	s.begin, s.at, s.inFrame = s.at, s.at+int64(header.HeaderSize), true
	return true, nil
}

// tail are the last bytes of a frame, which hold the checksum of its content.
type tail [16]byte

func readTail(file io.ReaderAt, of span) (t tail, err error) {
	n := min(int64(len(t)), of.size)
	_, err = file.ReadAt(t[:n], of.end()-n)
	return t, err //nolint:wrapcheck // the caller does
}

// appendText appends a text with its length before it.
func appendText(dst []byte, text string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(text))), text...)
}

// cutText returns the text at the beginning, and what follows. It is false if there is none.
func cutText(src []byte) (text, rest []byte, ok bool) {
	length, n := binary.Uvarint(src)
	if n <= 0 || length > uint64(len(src)-n) { //nolint:gosec // it is not negative
		return nil, nil, false
	}
	return src[n : n+int(length)], src[n+int(length):], true //nolint:gosec // it is at most the length of a slice
}
