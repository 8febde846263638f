package index

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/replay"
)

// Filter selects reviews. Fields must all match, and of a list one value. The zero Filter selects all reviews.
type Filter struct {
	// From and To bound the time. To is excluded.
	From, To time.Time
	// The following are those of replay.Subject. A kind is with or without its group, in any case.
	Users, Namespaces, Kinds, Endpoints []string
	// Decisions are those of record.Review. "none" is that nobody has decided.
	Decisions []string
	// Policies are names of policies and profiles that refused, warned or were injected, or kind/name.
	Policies []string
	// Effects are what they must have done.
	Effects []replay.Effect
	// Text is a part of the name of the object, in any case.
	Text string
}

// noDecision is the value of Filter.Decisions for reviews that nobody has decided on, as in record show.
const noDecision = "none"

// Row is a review.
type Row struct {
	replay.Subject

	Took     time.Duration
	Decision string
	// Message is that of a refusal, cut to a length that a person reads.
	Message string
	// Causes are the rules that refused or warned, and profiles that were injected.
	Causes []replay.Cause
	// HasPatch, HasWarnings and Redacted say whether there is a patch, a warning, and a value that is redacted.
	HasPatch, HasWarnings, Redacted bool
	// Place is where the review is in Recording, for people and ByID.
	Place string

	frame  *frame
	number uint32
}

// selection is a Filter for a table.
type selection struct {
	from, to int
	// wanted are the values of columns that are selected, nil for all.
	wanted [columns][]bool
	// names are the reviews of frames with Filter.Text, nil for all.
	names map[uint32]bits
}

// selects reports whether a row is selected by everything but its time.
func (s *selection) selects(r *row) bool {
	for c := range columns {
		if wanted := s.wanted[c]; wanted != nil && !wanted[c.get(r)] {
			return false
		}
	}
	return s.names == nil || s.names[r.frame].has(r.number)
}

// selection prepares a Filter. The caller has the lock.
func (t *table) selection(ctx context.Context, f *Filter) (*selection, error) {
	s := &selection{to: len(t.order)}
	if !f.From.IsZero() {
		s.from = t.before(nanoseconds(f.From))
	}
	if !f.To.IsZero() {
		s.to = t.before(nanoseconds(f.To))
	}
	is := func(list []string) func(string) bool {
		return func(value string) bool { return slices.Contains(list, value) }
	}
	t.want(s, users, len(f.Users), is(f.Users))
	t.want(s, namespaces, len(f.Namespaces), is(f.Namespaces))
	t.want(s, endpoints, len(f.Endpoints), is(f.Endpoints))
	t.want(s, decisions, len(f.Decisions), func(value string) bool { return slices.Contains(f.Decisions, cmp.Or(value, noDecision)) })
	t.want(s, kinds, len(f.Kinds), func(value string) bool {
		kind, _, _ := strings.Cut(value, ".")
		return slices.ContainsFunc(f.Kinds, func(name string) bool { return strings.EqualFold(name, value) || strings.EqualFold(name, kind) })
	})
	if len(f.Policies)+len(f.Effects) > 0 {
		s.wanted[causes] = make([]bool, len(t.causes))
		for id, all := range t.causes {
			s.wanted[causes][id] = slices.ContainsFunc(all, f.hasCause)
		}
	}
	if f.Text == "" {
		return s, nil
	}
	var err error
	s.names, err = t.find(ctx, strings.ToLower(f.Text))
	return s, err
}

func (f *Filter) hasCause(c replay.Cause) bool {
	return (len(f.Effects) == 0 || slices.Contains(f.Effects, c.Effect)) &&
		(len(f.Policies) == 0 || c.Matches(f.Policies))
}

func (t *table) want(s *selection, c column, n int, matches func(string) bool) {
	if n == 0 {
		return
	}
	s.wanted[c] = make([]bool, len(t.dictionaries[c].values))
	for id, value := range t.dictionaries[c].values {
		s.wanted[c][id] = id != other && matches(value)
	}
}

// names are what was found last, so that the parts of a page, and a page that is loaded again, search little.
type names struct {
	mu   sync.Mutex
	text string
	of   map[uint32]found
}

// found are the reviews of a frame whose name contains a text. Size is that of the texts when they were searched.
type found struct {
	names bits
	size  int64
}

// find returns the reviews of each frame whose name contains a text.
func (t *table) find(ctx context.Context, lower string) (map[uint32]bits, error) {
	t.names.mu.Lock()
	defer t.names.mu.Unlock()
	if t.names.text != lower {
		t.names.text, t.names.of = lower, map[uint32]found{}
	}
	out := make(map[uint32]bits, len(t.frames))
	var changed []*frame
	for _, one := range t.frames {
		if known, ok := t.names.of[one.number]; ok && known.size == one.text.size || one.gone {
			out[one.number] = known.names
		} else {
			changed = append(changed, one)
		}
	}
	in := make([]bits, len(changed))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, one := range changed {
		group.Go(func() (err error) {
			in[i], err = one.text.find(ctx, []byte(lower))
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err //nolint:wrapcheck // it is of find
	}
	for i, one := range changed {
		out[one.number], t.names.of[one.number] = in[i], found{in[i], one.text.size}
	}
	return out, nil
}

// each calls a function with each selected row, the newest first.
func (t *table) each(ctx context.Context, f *Filter, visit func(id uint32, r *row)) error {
	s, err := t.selection(ctx, f)
	if err != nil {
		return err
	}
	for i := s.to - 1; i >= s.from; i-- {
		if id := t.order[i]; s.selects(t.at(id)) {
			visit(id, t.at(id))
		}
	}
	return nil
}

// Find returns a page of the selected reviews, the newest first: at most a number of them behind those of the pages before.
// Total is the number of all selected reviews.
func (x *Index) Find(ctx context.Context, f Filter, skip, most int) (rows []Row, total int, err error) {
	t := x.table
	t.mu.RLock()
	defer t.mu.RUnlock()
	var ids []uint32
	err = t.each(ctx, &f, func(id uint32, _ *row) {
		if total >= skip && len(ids) < most {
			ids = append(ids, id)
		}
		total++
	})
	if err != nil {
		return nil, 0, err
	}
	rows, err = t.rows(ids)
	return rows, total, err
}

// rows returns rows with their texts. The caller has the lock.
func (t *table) rows(ids []uint32) ([]Row, error) {
	out := make([]Row, 0, len(ids))
	for _, id := range ids {
		r := t.at(id)
		one := t.frames[r.frame]
		e, err := one.text.read(r.text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", one.file.path, err)
		}
		out = append(out, Row{
			Subject: replay.Subject{
				Recording: filepath.ToSlash(one.file.path), ID: e.id, Time: unixNano(r.at), Endpoint: t.value(endpoints, r), User: t.value(users, r), Operation: t.value(operations, r),
				Kind: t.value(kinds, r), SubResource: e.subResource, Namespace: t.value(namespaces, r), Name: e.name, DryRun: r.is&isDryRun != 0,
			},
			Took: time.Duration(r.took) * time.Microsecond, Decision: t.value(decisions, r), Message: e.message, Causes: t.causes[r.causes],
			HasPatch: r.is&isPatched != 0, HasWarnings: r.is&isWarned != 0, Redacted: r.is&isRedacted != 0,
			Place: fmt.Sprintf("%d.%d", one.span.offset, r.number), frame: one, number: r.number,
		})
	}
	return out, nil
}

// maxSameID bounds the rows of ByID.
const maxSameID = 100

// ByID returns the reviews with an ID, the newest first.
func (x *Index) ByID(id string) ([]Row, error) {
	t := x.table
	t.mu.RLock()
	defer t.mu.RUnlock()
	hash := hashOf(id)
	var ids []uint32
	for i := len(t.order) - 1; i >= 0 && len(ids) < maxSameID; i-- {
		if t.at(t.order[i]).id == hash {
			ids = append(ids, t.order[i])
		}
	}
	rows, err := t.rows(ids)
	return slices.DeleteFunc(rows, func(r Row) bool { return r.ID != id }), err
}

// ByPlace returns the review at a Row.Place of a file of this name, without its directory. It is nil if there is none.
func (x *Index) ByPlace(file, place string) (*Row, error) {
	t := x.table
	t.mu.RLock()
	defer t.mu.RUnlock()
	offset, number, _ := strings.Cut(place, ".")
	at, err := strconv.ParseInt(offset, 10, 64)
	n, failed := strconv.ParseUint(number, 10, 32)
	if errors.Join(err, failed) != nil {
		return nil, nil //nolint:nilnil // there is none
	}
	i := slices.IndexFunc(t.frames, func(f *frame) bool {
		return !f.gone && f.span.offset == at && filepath.Base(f.file.path) == file
	})
	if i < 0 {
		return nil, nil //nolint:nilnil // there is none
	}
	for _, id := range t.order {
		if r := t.at(id); r.frame == t.frames[i].number && uint64(r.number) == n {
			rows, err := t.rows([]uint32{id})
			if err != nil {
				return nil, err
			}
			return &rows[0], nil
		}
	}
	return nil, nil //nolint:nilnil // there is none
}

// Buckets are numbers of reviews over time.
type Buckets struct {
	From time.Time
	Step time.Duration
	// Decisions are the keys of Counts, in a fixed order.
	Decisions []string
	// Counts are by decision and bucket.
	Counts map[string][]int
}

// Histogram counts the selected reviews by time and decision, in so many buckets from the first to the last of all reviews, or over the
// times of the Filter.
func (x *Index) Histogram(ctx context.Context, f Filter, buckets int) (*Buckets, error) {
	t := x.table
	t.mu.RLock()
	defer t.mu.RUnlock()
	from, to := t.times()
	if !f.From.IsZero() {
		from = f.From
	}
	if !f.To.IsZero() {
		to = f.To
	}
	step := max(time.Millisecond, to.Sub(from)/time.Duration(buckets)+1)
	out := &Buckets{From: from, Step: step, Counts: map[string][]int{}}
	begin := nanoseconds(from)
	var counts [maxSmall + 1][]int
	err := t.each(ctx, &f, func(_ uint32, r *row) {
		if counts[r.decision] == nil {
			counts[r.decision] = make([]int, buckets)
		}
		at := (r.at - begin) / int64(step)
		counts[r.decision][min(max(at, 0), int64(buckets)-1)]++
	})
	for id, of := range counts {
		if of != nil {
			decision := t.dictionaries[decisions].values[id]
			out.Decisions, out.Counts[decision] = append(out.Decisions, decision), of
		}
	}
	slices.Sort(out.Decisions)
	return out, err
}

// count counts the selected reviews by the value of a column.
func (t *table) count(ctx context.Context, f *Filter, c column) ([]int, error) {
	counts := make([]int, len(t.dictionaries[c].values))
	err := t.each(ctx, f, func(_ uint32, r *row) { counts[c.get(r)]++ })
	return counts, err
}

// CauseCount is how often a rule has done something.
type CauseCount struct {
	replay.Cause

	Count int
}

// TopCauses returns the policies and profiles that were most frequent in the selected reviews, or the rules of policies. With
// policies and effects in the Filter, others are not counted.
func (x *Index) TopCauses(ctx context.Context, f Filter, byRule bool, most int) ([]CauseCount, error) {
	t := x.table
	t.mu.RLock()
	defer t.mu.RUnlock()
	counts, err := t.count(ctx, &f, causes)
	sums := map[replay.Cause]int{}
	for id, n := range counts {
		if n == 0 {
			continue
		}
		seen := map[replay.Cause]bool{}
		for _, cause := range t.causes[id] {
			if !byRule {
				cause.Rule.Rule = ""
			}
			if f.hasCause(cause) && !seen[cause] {
				seen[cause] = true
				sums[cause] += n
			}
		}
	}
	out := make([]CauseCount, 0, len(sums))
	for cause, n := range sums {
		out = append(out, CauseCount{cause, n})
	}
	slices.SortFunc(out, func(a, b CauseCount) int {
		return cmp.Or(b.Count-a.Count, cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Rule.Rule, b.Rule.Rule), cmp.Compare(a.Effect, b.Effect))
	})
	return out[:min(most, len(out))], err
}

// Read reads a review of Find or ByID. It reads those of its frame before it, too.
func (x *Index) Read(ctx context.Context, r *Row) (*replay.Item, error) {
	file, err := os.Open(r.frame.file.path)
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the path
	}
	defer file.Close() //nolint:errcheck // it is only read
	x.table.mu.RLock()
	begin := r.frame.span.offset
	x.table.mu.RUnlock()
	reader, err := record.NewReader(io.NewSectionReader(file, begin, math.MaxInt64-begin))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.Recording, err)
	}
	defer reader.Close()
	for n := uint32(0); ; n++ {
		const every = 1 << 10
		if n%every == 0 && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		text, err := reader.NextText()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.Recording, err)
		}
		if n < r.number {
			continue
		}
		source := r.frame.file.source()
		item, err := replay.NewItem(&source, reader, text)
		if err == nil && replay.SubjectOf(item.Review).ID != r.ID {
			err = errors.New("the recording has changed (hint: load the page again)")
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.Recording, err)
		}
		return item, nil
	}
}
