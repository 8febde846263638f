package index

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
)

// An index file begins with magic. Then comes a block for each frame of the recording that is whole: a head, the values of
// dictionaries, the rows in the order of time, and the texts. Numbers are little-endian. The checksum of the head covers
// everything but the texts, which may be as large as the recording and are read with bounds.
//
// Nothing of an index file is trusted: a block that is damaged, or about other bytes than those of the recording, is made again.
const (
	// magic has the version of the format. Another one is made again, too.
	magic     = "GHINDEX\x01"
	headBytes = 60
	rowBytes  = 44
	// maxDictionary bounds the values of a block, in bytes.
	maxDictionary = 64 << 20
)

// head is the head of a block.
type head struct {
	span    span
	tail    tail
	rows    uint32
	values  uint32
	text    int64
	missing int64
	sum     uint32
}

// size returns that of the block.
func (h *head) size() int64 {
	return headBytes + int64(h.values) + int64(h.rows)*rowBytes + h.text
}

func (h *head) append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, uint64(h.span.offset)) //nolint:gosec // sizes are not negative, here and below
	dst = binary.LittleEndian.AppendUint64(dst, uint64(h.span.size))   //nolint:gosec // as above
	dst = append(dst, h.tail[:]...)
	dst = binary.LittleEndian.AppendUint32(dst, h.rows)
	dst = binary.LittleEndian.AppendUint32(dst, h.values)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(h.text))    //nolint:gosec // as above
	dst = binary.LittleEndian.AppendUint64(dst, uint64(h.missing)) //nolint:gosec // as above
	return binary.LittleEndian.AppendUint32(dst, h.sum)
}

// decodeHead decodes a head, and reports whether the sizes are possible. Left are the bytes of the file behind it.
func decodeHead(src []byte, left, recording int64) (h head, ok bool) {
	number := func(at int) int64 { return int64(binary.LittleEndian.Uint64(src[at:])) } //nolint:gosec // negative ones are refused
	h.span = span{number(0), number(8)}
	copy(h.tail[:], src[16:])
	h.rows, h.values = binary.LittleEndian.Uint32(src[32:]), binary.LittleEndian.Uint32(src[36:])
	h.text, h.missing, h.sum = number(40), number(48), binary.LittleEndian.Uint32(src[56:])
	ok = h.span.offset >= 0 && h.span.size > 0 && h.span.offset <= recording && h.span.size <= recording-h.span.offset &&
		h.text >= 0 && h.text <= left && h.missing >= 0 && h.values <= maxDictionary && h.size()-headBytes <= left
	return h, ok
}

func (r *row) append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, uint64(r.at)) //nolint:gosec // its bits are kept
	for _, n := range [...]uint32{r.took, r.number, r.text, r.id, r.user, r.namespace, r.kind, r.causes} {
		dst = binary.LittleEndian.AppendUint32(dst, n)
	}
	return append(dst, r.endpoint, r.decision, r.operation, r.is)
}

func decodeRow(src []byte) (r row) {
	_ = src[rowBytes-1]
	n := binary.LittleEndian.Uint32
	r.at = int64(binary.LittleEndian.Uint64(src)) //nolint:gosec // its bits are kept
	r.took, r.number, r.text, r.id = n(src[8:]), n(src[12:]), n(src[16:]), n(src[20:])
	r.user, r.namespace, r.kind, r.causes = n(src[24:]), n(src[28:]), n(src[32:]), n(src[36:])
	r.endpoint, r.decision, r.operation, r.is = src[40], src[41], src[42], src[43]
	return r
}

// checksum continues a checksum.
func checksum(sum uint32, of []byte) uint32 {
	return crc32.Update(sum, crc32.MakeTable(crc32.Castagnoli), of)
}

// values returns the dictionaries of some rows, and gives the rows their numbers in them.
func (t *table) values(rows []row) []byte {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var out []byte
	for c := range columns {
		numbers := map[uint32]uint32{}
		var list []byte
		for i := range rows {
			id := c.get(&rows[i])
			number, ok := numbers[id]
			if !ok {
				number = uint32(len(numbers)) //nolint:gosec // a dictionary is bounded
				numbers[id] = number
				list = appendText(list, t.dictionaries[c].values[id])
			}
			c.set(&rows[i], number)
		}
		out = append(binary.AppendUvarint(out, uint64(len(numbers))), list...)
	}
	return out
}

// intern reads the dictionaries of a block, and returns the numbers of their values in those of the table.
func (t *table) internAll(values []byte) (out [columns][]uint32, ok bool) {
	for c := range columns {
		count, n := binary.Uvarint(values)
		if n <= 0 || count > uint64(len(values)) {
			return out, false
		}
		values = values[n:]
		out[c] = make([]uint32, 0, count)
		for range count {
			text, rest, ok := cutText(values)
			if !ok {
				return out, false
			}
			out[c], values = append(out[c], t.intern(c, string(text))), rest
		}
	}
	return out, len(values) == 0
}

// openIndex opens an index file, nil if there is none that can be read.
func openIndex(path string) *os.File {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() {
		return nil
	}
	file, err := os.Open(path) // #nosec G304 -- beside a file that the user names
	if err != nil {
		return nil
	}
	return file
}

// load adds the frames that an index file has, as far as it is about the recording. The frames refer to the file unless there
// are none.
func (t *table) load(of *file, recording io.ReaderAt, size int64, from *os.File) (out []*frame) {
	info, err := from.Stat()
	begin := make([]byte, len(magic))
	if _, failed := from.ReadAt(begin, 0); err != nil || failed != nil || string(begin) != magic {
		return nil
	}
	for at, last := int64(len(magic)), int64(0); at+headBytes <= info.Size(); {
		f, next := t.loadBlock(of, recording, size, from, at, info.Size())
		if f == nil || f.span.offset < last {
			return out
		}
		out, at, last = append(out, f), next, f.span.end()
	}
	return out
}

// loadBlock adds one frame, and returns where the next begins. It is nil for a block that cannot be used.
func (t *table) loadBlock(of *file, recording io.ReaderAt, size int64, from *os.File, at, end int64) (f *frame, next int64) {
	var buffer [headBytes]byte
	if _, err := from.ReadAt(buffer[:], at); err != nil {
		return nil, 0
	}
	h, ok := decodeHead(buffer[:], end-at-headBytes, size)
	if !ok {
		return nil, 0
	}
	if is, err := readTail(recording, h.span); err != nil || is != h.tail {
		return nil, 0
	}
	values, rows := at+headBytes, at+headBytes+int64(h.values)
	f = &frame{file: of, span: h.span, missing: h.missing, text: texts{from, rows + int64(h.rows)*rowBytes, h.text}}
	sum := checksum(0, buffer[:headBytes-4])
	dictionaries := make([]byte, h.values)
	if _, err := from.ReadAt(dictionaries, values); err != nil {
		return nil, 0
	}
	sum = checksum(sum, dictionaries)
	numbers, ok := t.internAll(dictionaries)
	if !ok || !eachPart(from, rows, h.rows, func(part []byte, _ []row) bool {
		sum = checksum(sum, part)
		return true
	}) || sum != h.sum {
		return nil, 0
	}
	t.addFrame(f)
	if !eachPart(from, rows, h.rows, func(part []byte, buffer []row) bool {
		decoded, ok := decodeRows(part, buffer, f, &numbers)
		t.add(f, decoded)
		return ok
	}) {
		return nil, 0
	}
	return f, at + h.size()
}

// eachPart reads rows, some at a time. It is false if they cannot be read.
func eachPart(from io.ReaderAt, at int64, rows uint32, use func(part []byte, buffer []row) bool) bool {
	part, buffer := make([]byte, batchRows*rowBytes), make([]row, 0, batchRows)
	for left := int64(rows); left > 0; {
		n := min(left, batchRows)
		if _, err := from.ReadAt(part[:n*rowBytes], at); err != nil || !use(part[:n*rowBytes], buffer) {
			return false
		}
		at, left = at+n*rowBytes, left-n
	}
	return true
}

// decodeRows decodes rows with the numbers of a table. It ends at one that cannot be.
func decodeRows(part []byte, into []row, f *frame, numbers *[columns][]uint32) ([]row, bool) {
	for ; len(part) > 0; part = part[rowBytes:] {
		r := decodeRow(part)
		r.frame = f.number
		ok := true
		number := func(c column, local uint32) uint32 {
			if int(local) >= len(numbers[c]) {
				ok = false
				return 0
			}
			return numbers[c][local]
		}
		small := func(c column, local uint8) uint8 { return uint8(number(c, uint32(local))) } //nolint:gosec // these dictionaries are small
		r.user, r.namespace, r.kind, r.causes = number(users, r.user), number(namespaces, r.namespace), number(kinds, r.kind), number(causes, r.causes)
		r.endpoint, r.decision, r.operation = small(endpoints, r.endpoint), small(decisions, r.decision), small(operations, r.operation)
		if !ok {
			return into, false
		}
		into = append(into, r)
	}
	return into, true
}

// save writes the frames to a new index file, which replaces an earlier one when it is whole. Afterwards the frames refer to it.
func (t *table) save(path string, recording io.ReaderAt, frames []*frame) (err error) {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-") // it has mode 0600
	if err != nil {
		return err //nolint:wrapcheck // it names the path
	}
	name := file.Name()
	defer func() {
		if err != nil {
			_ = file.Close() // it may be closed
			_ = os.Remove(name)
		}
	}()
	out := bufio.NewWriterSize(file, 1<<18)
	at := int64(len(magic))
	_, _ = out.WriteString(magic) // Flush returns errors, here and below
	bases := make([]int64, len(frames))
	for i, f := range frames {
		h := head{span: f.span, text: f.text.size, missing: f.missing}
		if h.tail, err = readTail(recording, f.span); err != nil {
			return fmt.Errorf("read the recording: %w", err)
		}
		rows := t.rowsOf(f)
		values := t.values(rows)
		h.rows, h.values = uint32(len(rows)), uint32(len(values)) //nolint:gosec // both are bounded
		h.sum = 0
		text := make([]byte, 0, headBytes)
		sum := checksum(0, h.append(text)[:headBytes-4])
		sum = checksum(sum, values)
		encoded := make([]byte, 0, rowBytes)
		for j := range rows {
			sum = checksum(sum, rows[j].append(encoded))
		}
		h.sum = sum
		_, _ = out.Write(h.append(text))
		_, _ = out.Write(values)
		for j := range rows {
			_, _ = out.Write(rows[j].append(encoded))
		}
		bases[i] = at + headBytes + int64(h.values) + int64(h.rows)*rowBytes
		at += h.size()
		if _, err = io.Copy(out, io.NewSectionReader(f.text.file, f.text.base, f.text.size)); err != nil {
			return err //nolint:wrapcheck // it names the path
		}
	}
	if err = errors.Join(out.Flush(), file.Close(), os.Rename(name, path)); err != nil {
		return err
	}
	if file, err = os.Open(path); err != nil { // #nosec G304 -- it was written here
		return err //nolint:wrapcheck // it names the path
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, f := range frames {
		f.text.file, f.text.base = file, bases[i]
	}
	return nil
}
