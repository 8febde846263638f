package index_test

import (
	"bytes"
	"io"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// joined returns a recording with one segment in many zstd frames.
func joined(t testing.TB) []byte {
	t.Helper()
	var whole, out bytes.Buffer
	write(t, &whole, 0, 100, 1000, true)
	decoder, err := zstd.NewReader(&whole)
	check(t, err)
	defer decoder.Close()
	plain, err := io.ReadAll(decoder)
	check(t, err)
	for part := range bytes.SplitAfterSeq(plain, []byte(`"request"`)) {
		encoder, err := zstd.NewWriter(&out)
		check(t, err)
		_, err = encoder.Write(part)
		check(t, err)
		check(t, encoder.Close())
	}
	return out.Bytes()
}
