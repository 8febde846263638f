package record

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// Writer writes one segment. It is for one goroutine.
type Writer struct {
	zstd *zstd.Encoder
	// plain is the number of bytes before compression.
	plain int64
}

// window is the zstd window of a segment, in bytes: about a hundred reviews of a rollout.
const window = 1 << 20

// NewWriter begins a segment. The Writer does not close the file.
func NewWriter(file io.Writer, header *Header) (*Writer, error) {
	encoder, err := zstd.NewWriter(file, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(window), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, fmt.Errorf("write zstd: %w", err)
	}
	w := &Writer{zstd: encoder}
	return w, w.Write(&Line{Header: header})
}

// Write adds a line. The error is that of the file; after one the segment is damaged.
func (w *Writer) Write(line *Line) error {
	text, err := json.Marshal(line)
	if err != nil {
		return fmt.Errorf("encode a line of the recording: %w", err)
	}
	return w.WriteText(append(text, '\n'))
}

// WriteText adds a line that is encoded already, with its end.
func (w *Writer) WriteText(text []byte) error {
	w.plain += int64(len(text))
	_, err := w.zstd.Write(text)
	return err //nolint:wrapcheck // the caller names the file
}

// Bytes returns how many bytes the segment has before compression.
func (w *Writer) Bytes() int64 { return w.plain }

// Flush writes everything to the file, so that a reader can read it.
func (w *Writer) Flush() error { return w.zstd.Flush() } //nolint:wrapcheck // the caller names the file

// Close ends the segment.
func (w *Writer) Close() error { return w.zstd.Close() } //nolint:wrapcheck // the caller names the file
