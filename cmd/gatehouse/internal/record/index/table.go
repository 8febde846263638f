package index

import (
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/replay"
)

// row is what is in memory of a review. Names are numbers of dictionaries.
type row struct {
	at int64
	// took is in microseconds.
	took uint32
	// frame is the number of the frame in table.frames, number that of the review in it, and text where its
	// strings begin in the text of the frame.
	frame, number, text uint32
	// id is the hash of the ID.
	id                                uint32
	user, namespace, kind, causes     uint32
	endpoint, decision, operation, is uint8
}

// The bits of row.is.
const (
	isDryRun = 1 << iota
	isPatched
	isWarned
	isRedacted
)

const (
	chunkRows = 1 << 14
	// maxRows bounds the rows in memory, about 500 MB.
	maxRows = 10_000_000
)

// frame is a part of a recording file whose reviews are in the table.
type frame struct {
	file *file
	// number is its place in table.frames.
	number uint32
	// The following are guarded by table.mu.
	span span
	text texts
	// missing is the number of reviews that the server could not record.
	missing    int64
	rows       int
	begin, end int64
	gone       bool
	// problem is why the frame is not read to its end, "" if it is.
	problem string

	// unsaved is true if the frame cannot be in an index file: it is not whole, or damaged. It belongs to the goroutine
	// that reads the file.
	unsaved bool
}

// dictionary has the distinct values of a column. 0 is "", and other one that has no number of its own.
type dictionary struct {
	ids    map[string]uint32
	values []string
	bytes  int
	// most bounds the values.
	most int
}

const (
	other     = 1
	otherText = "(other)"
	// maxBytes and maxValues bound a dictionary.
	maxBytes  = 16 << 20
	maxValues = 1 << 18
	maxSmall  = 255
)

func newDictionary(most int) dictionary {
	return dictionary{ids: map[string]uint32{"": 0, otherText: other}, values: []string{"", otherText}, most: most}
}

func (d *dictionary) intern(value string) uint32 {
	if id, ok := d.ids[value]; ok {
		return id
	}
	if len(d.values) >= d.most || d.bytes+len(value) > maxBytes {
		return other
	}
	id := uint32(len(d.values)) //nolint:gosec // it is bounded
	value = strings.Clone(value)
	d.ids[value], d.values, d.bytes = id, append(d.values, value), d.bytes+len(value)
	return id
}

// column is a column with a dictionary.
type column int

const (
	users column = iota
	namespaces
	kinds
	causes
	endpoints
	decisions
	operations
	columns
)

// get returns the value of a row in a column.
func (c column) get(r *row) uint32 {
	switch c { //nolint:exhaustive // the last one is the default
	case users:
		return r.user
	case namespaces:
		return r.namespace
	case kinds:
		return r.kind
	case causes:
		return r.causes
	case endpoints:
		return uint32(r.endpoint)
	case decisions:
		return uint32(r.decision)
	default:
		return uint32(r.operation)
	}
}

// set sets the value of a row in a column.
func (c column) set(r *row, value uint32) {
	small := uint8(min(value, maxSmall))
	switch c { //nolint:exhaustive // the last one is the default
	case users:
		r.user = value
	case namespaces:
		r.namespace = value
	case kinds:
		r.kind = value
	case causes:
		r.causes = value
	case endpoints:
		r.endpoint = small
	case decisions:
		r.decision = small
	default:
		r.operation = small
	}
}

// table has the rows of all files. It is safe for concurrent use.
type table struct {
	mu           sync.RWMutex
	chunks       [][]row
	order        []uint32 // of all rows, the oldest first
	frames       []*frame
	dictionaries [columns]dictionary
	// causes are the decoded values of the dictionary of this name.
	causes [][]replay.Cause
	names  names
	full   bool
}

func newTable() *table {
	t := new(table)
	for c := range columns {
		most := maxValues
		if c >= endpoints {
			most = maxSmall
		}
		t.dictionaries[c] = newDictionary(most)
	}
	t.causes = [][]replay.Cause{nil, nil}
	return t
}

// at returns a row. The caller has the lock, here and in the methods below.
func (t *table) at(id uint32) *row { return &t.chunks[id/chunkRows][id%chunkRows] }

func (t *table) value(c column, r *row) string { return t.dictionaries[c].values[c.get(r)] }

// intern returns the number of a value.
func (t *table) intern(c column, value string) uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	id := t.dictionaries[c].intern(value)
	if c == causes && int(id) == len(t.causes) {
		t.causes = append(t.causes, decodeCauses(value))
	}
	return id
}

// addFrame adds a frame without rows.
func (t *table) addFrame(f *frame) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f.number = uint32(len(t.frames)) //nolint:gosec // files have fewer
	t.frames = append(t.frames, f)
}

// add adds rows of a frame. It sorts them.
func (t *table) add(f *frame, rows []row) {
	if len(rows) == 0 {
		return
	}
	byTime := func(a, b row) int {
		if a.at < b.at {
			return -1
		}
		if a.at > b.at {
			return 1
		}
		return int(a.number) - int(b.number)
	}
	if !slices.IsSortedFunc(rows, byTime) {
		slices.SortFunc(rows, byTime)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	first := len(t.order)
	if first+len(rows) > maxRows {
		t.full, rows = true, rows[:max(0, maxRows-first)]
		if len(rows) == 0 {
			return
		}
	}
	if f.rows == 0 || rows[0].at < f.begin {
		f.begin = rows[0].at
	}
	f.end = max(f.end, rows[len(rows)-1].at)
	f.rows += len(rows)
	for i := range rows {
		id := first + i
		if id/chunkRows == len(t.chunks) {
			t.chunks = append(t.chunks, make([]row, 0, chunkRows))
		}
		chunk := &t.chunks[id/chunkRows]
		*chunk = append(*chunk, rows[i])
		t.order = append(t.order, uint32(id)) //nolint:gosec // it is bounded by maxRows
	}
	t.merge(first)
}

// merge merges the sorted rows from a place of the order on with those before.
func (t *table) merge(first int) {
	if first == 0 || t.at(t.order[first-1]).at <= t.at(t.order[first]).at {
		return
	}
	added := slices.Clone(t.order[first:])
	to := len(t.order)
	for i, j := first, len(added); j > 0; {
		to--
		if i > 0 && t.at(t.order[i-1]).at > t.at(added[j-1]).at {
			i--
			t.order[to] = t.order[i]
		} else {
			j--
			t.order[to] = added[j]
		}
	}
}

// before returns how many rows are before a time.
func (t *table) before(at int64) int {
	return sort.Search(len(t.order), func(i int) bool { return t.at(t.order[i]).at >= at })
}

// removeGone removes the rows of frames that are gone.
func (t *table) removeGone() {
	t.mu.Lock()
	defer t.mu.Unlock()
	old, order := t.chunks, t.order
	t.chunks, t.order, t.full = nil, nil, false
	for _, id := range order {
		r := &old[id/chunkRows][id%chunkRows]
		if t.frames[r.frame].gone {
			continue
		}
		next := len(t.order)
		if next/chunkRows == len(t.chunks) {
			t.chunks = append(t.chunks, make([]row, 0, chunkRows))
		}
		chunk := &t.chunks[next/chunkRows]
		*chunk = append(*chunk, *r)
		t.order = append(t.order, uint32(next)) //nolint:gosec // it is bounded by maxRows
	}
}

// rowsOf returns the rows of a frame in the order of time.
func (t *table) rowsOf(f *frame) []row {
	t.mu.RLock()
	defer t.mu.RUnlock()
	out := make([]row, 0, f.rows)
	from := t.before(f.begin)
	for _, id := range t.order[from:] {
		r := t.at(id)
		if r.at > f.end {
			break
		}
		if r.frame == f.number {
			out = append(out, *r)
		}
	}
	return out
}

// times returns those of the oldest and the newest row.
func (t *table) times() (first, last time.Time) {
	if len(t.order) == 0 {
		return first, last
	}
	return unixNano(t.at(t.order[0]).at), unixNano(t.at(t.order[len(t.order)-1]).at)
}

func unixNano(at int64) time.Time { return time.Unix(0, at).UTC() }

// encodeCauses returns causes as a value of a dictionary.
func encodeCauses(all []replay.Cause) string {
	var out []byte
	for i := range all {
		for _, text := range [...]string{string(all[i].Effect), all[i].Kind, all[i].Name, all[i].Rule.Rule} {
			out = appendText(out, text)
		}
	}
	return string(out)
}

// decodeCauses returns the causes of a value, as far as it can be read.
func decodeCauses(value string) (out []replay.Cause) {
	rest := []byte(value)
	for len(rest) > 0 {
		var parts [4]string
		for i := range parts {
			text, after, ok := cutText(rest)
			if !ok {
				return out
			}
			parts[i], rest = string(text), after
		}
		out = append(out, replay.Cause{Effect: replay.Effect(parts[0]), Rule: replay.Rule{Kind: parts[1], Name: parts[2], Rule: parts[3]}})
	}
	return out
}
