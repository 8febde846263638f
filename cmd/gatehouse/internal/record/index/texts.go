package index

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/gatehouse-dev/gatehouse/internal/truncate"
)

// texts are the strings of the reviews of a frame that are not in memory, one after the other in the order of the reviews.
type texts struct {
	file       *os.File
	base, size int64
}

// entry are the strings of a review.
type entry struct{ name, subResource, id, message string }

const (
	// maxName, as in replay.Subject, and maxMessage bound strings of an entry, in bytes.
	maxName    = 512
	maxMessage = 1000
	// maxEntry bounds an entry.
	maxEntry = 4 << 10
)

func (e *entry) append(dst []byte) []byte {
	for _, text := range [...]string{truncate.Bytes(e.name, maxName), truncate.Bytes(e.subResource, maxName), truncate.Bytes(e.id, maxName), truncate.Bytes(e.message, maxMessage)} {
		dst = appendText(dst, text)
	}
	return dst
}

var errDamaged = errors.New("the index is damaged (hint: remove the file that ends in .index, and start again)")

// cutEntry returns the entry at the beginning, and what follows.
func cutEntry(src []byte) (parts [4][]byte, rest []byte, ok bool) {
	for i := range parts {
		if parts[i], src, ok = cutText(src); !ok {
			return parts, src, false
		}
	}
	return parts, src, true
}

// read returns the entry at a place.
func (t *texts) read(at uint32) (e entry, err error) {
	if int64(at) >= t.size {
		return e, errDamaged
	}
	var buffer [maxEntry]byte
	n, err := t.file.ReadAt(buffer[:min(maxEntry, t.size-int64(at))], t.base+int64(at))
	if err != nil && !errors.Is(err, io.EOF) {
		return e, fmt.Errorf("read the index: %w", err)
	}
	parts, _, ok := cutEntry(buffer[:n])
	if !ok {
		return e, errDamaged
	}
	return entry{string(parts[0]), string(parts[1]), string(parts[2]), string(parts[3])}, nil
}

// bits is a set of small numbers.
type bits []uint64

func (b bits) has(n uint32) bool { return int(n/64) < len(b) && b[n/64]&(1<<(n%64)) != 0 }

// find returns the numbers of the reviews whose name contains a text in lower case.
func (t *texts) find(ctx context.Context, lower []byte) (bits, error) {
	const buffered = 256 << 10
	in := bufio.NewReaderSize(io.NewSectionReader(t.file, t.base, t.size), buffered)
	var out bits
	for number, left := uint32(0), t.size; left > 0; number++ {
		const every = 1 << 12
		if number%every == 0 && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		next, err := in.Peek(int(min(maxEntry, left)))
		if err != nil {
			return nil, fmt.Errorf("read the index: %w", err)
		}
		parts, rest, ok := cutEntry(next)
		if !ok {
			return nil, errDamaged
		}
		if contains(parts[0], lower) {
			for int(number/64) >= len(out) {
				out = append(out, 0)
			}
			out[number/64] |= 1 << (number % 64)
		}
		used := len(next) - len(rest)
		_, _ = in.Discard(used) // they are in the buffer
		left -= int64(used)
	}
	return out, nil
}

// contains reports whether a name contains a text in lower case. Names of Kubernetes are in lower case mostly.
func contains(name, lower []byte) bool {
	return bytes.Contains(name, lower) || hasUpper(name) && bytes.Contains(bytes.ToLower(name), lower)
}

func hasUpper(text []byte) bool {
	for _, c := range text {
		if c >= 'A' && c <= 'Z' || c >= 0x80 {
			return true
		}
	}
	return false
}
