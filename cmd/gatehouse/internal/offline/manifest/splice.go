package manifest

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// edit replaces a part of a text.
type edit struct {
	start, end int
	text       []byte
}

// splicer turns the changes in a tree into edits of the text.
type splicer struct {
	*text
	root    *node
	json    bool
	newline string
	edits   []edit
}

// splice returns the text of a document with the changes of its tree. Its last line is ended, even if that of the document is not.
// The error is errReencode if the text cannot be changed in place.
func splice(data []byte, t *tree, json bool, newline string) ([]byte, error) {
	if t.root.at.start < 0 {
		return nil, errReencode
	}
	if !json && !bytes.HasSuffix(data, []byte("\n")) {
		data = append(slices.Clone(data), newline...)
	}
	s := splicer{text: newText(data), root: t.root, json: json, newline: newline}
	if err := s.change(t.root, nil, nil); err != nil {
		return nil, err
	}
	return s.apply()
}

// apply returns the text with the edits. Those at the same place keep their order.
func (s *splicer) apply() ([]byte, error) {
	slices.SortStableFunc(s.edits, func(a, b edit) int { return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end)) })
	var (
		out []byte
		end int
	)
	for _, e := range s.edits {
		if e.start < end || e.end < e.start || e.end > len(s.data) {
			return nil, errReencode
		}
		out = append(append(out, s.data[end:e.start]...), e.text...)
		end = e.end
	}
	return append(out, s.data[end:]...), nil
}

func (s *splicer) put(start, end int, text []byte) { s.edits = append(s.edits, edit{start, end, text}) }

// change makes the edits for a value of the text: of the entry of a parent, or of none for the whole document. Of two insertions at the
// same place the inner one comes first.
func (s *splicer) change(n *node, in *entry, parent *node) error {
	if !n.changed {
		return nil
	}
	if parent != nil && parent.at.block && len(n.at.entries) == 0 && len(n.entries) > 0 && s.line(n.at.start) == s.line(in.colon) {
		return s.rewrite(parent, in, n.at, n) // empty brackets become a block
	}
	for _, e := range n.entries {
		var err error
		switch {
		case e.fresh || e.inherited:
		case e.was == nil:
			err = s.change(e.value, e, n)
		case n.at.block:
			err = s.rewrite(n, e, e.was.at, e.value)
		default:
			err = s.rewriteFlow(n, e)
		}
		if err != nil {
			return err
		}
	}
	kept := n.kept()
	switch {
	case !slices.Contains(kept, false) && !slices.ContainsFunc(n.entries, func(e *entry) bool { return e.fresh }):
		return nil
	case !n.at.block:
		return s.changeFlow(n, kept)
	case !slices.Contains(kept, true) && len(n.entries) == 0:
		return s.clear(n, in)
	case !slices.Contains(kept, true) && parent != nil && parent.at.block && !s.begins(n.at.entries[0]):
		return s.rewrite(parent, in, n.at, n)
	default:
		return s.changeBlock(n, in, kept)
	}
}

// kept returns for each entry of the text whether it is still there. A merge key is, unless it is written out.
func (n *node) kept() []bool {
	there := make(map[*entry]bool, len(n.entries))
	for _, e := range n.entries {
		there[e] = true
	}
	kept := make([]bool, len(n.at.entries))
	for i, e := range n.at.entries {
		kept[i] = there[e] || !n.unmerged && e.key != nil && isMerge(e.key)
	}
	return kept
}

// rewrite replaces a value in a block.
func (s *splicer) rewrite(parent *node, e *entry, old *place, value *node) error {
	written := styleOf(parent, s.root, s.text, s.newline)
	if parent.kind == rawjson.Array {
		written.sequence = max(written.sequence, written.dash) // an array in an array must be further in
	}
	head, body := written.block(value, parent.at.column)
	behind := head
	if head != "" {
		behind = " " + head
	}
	below := s.line(old.content) > s.line(e.colon)
	switch {
	case old.start == old.end: // left out
		s.put(e.colon, e.colon, []byte(behind))
		s.put(s.lineEnd(e.colon), s.lineEnd(e.colon), body)
	case old.block && below && old.start == old.content:
		s.put(e.colon, e.colon, []byte(behind))
		s.put(s.lineStart(old.content), s.lineEnd(old.end), body)
	case parent.kind == rawjson.Array && s.begins(e) && (old.block || below || head == "" && s.ends(old)):
		s.put(s.lineStart(e.from), s.lineEnd(old.end), written.appendElement(nil, value, parent.at.column))
	case old.block, below && body != nil:
		return errReencode
	case head == "":
		s.put(e.colon, old.end, nil)
		s.put(s.lineEnd(old.end), s.lineEnd(old.end), body)
	default:
		s.put(old.start, old.end, []byte(head))
		s.put(s.lineEnd(old.end), s.lineEnd(old.end), body)
	}
	return nil
}

// clear makes an object or array empty.
func (s *splicer) clear(n *node, in *entry) error {
	empty := "[]"
	if n.kind == rawjson.Object {
		empty = "{}"
	}
	switch {
	case in == nil, n.at.start != n.at.content:
		return errReencode
	case s.line(n.at.content) > s.line(in.colon):
		s.put(in.colon, in.colon, []byte(" "+empty))
		return s.removeLines(n.at.entries)
	case s.line(n.at.content) == s.line(n.at.end):
		s.put(n.at.content, n.at.end, []byte(empty))
		return nil
	default:
		return errReencode
	}
}

// removeLines removes entries that begin on lines of their own. Comments in between stay.
func (s *splicer) removeLines(entries []*entry) error {
	for _, e := range entries {
		if !s.begins(e) {
			return errReencode
		}
		s.put(s.lineStart(e.from), s.lineEnd(e.end()), nil)
	}
	return nil
}

// begins reports whether the entry is the first in its line.
func (s *splicer) begins(e *entry) bool {
	return len(bytes.TrimLeft(s.data[s.lineStart(e.from):e.from], " ")) == 0
}

// ends reports whether the value is the last in its line.
func (s *splicer) ends(at *place) bool {
	return len(bytes.TrimSpace(s.data[at.end:s.lineEnd(at.end)])) == 0
}

// changeBlock removes entries of a block and inserts new ones.
func (s *splicer) changeBlock(n *node, in *entry, kept []bool) error {
	if err := s.removeFromBlock(n, kept); err != nil {
		return err
	}
	written := styleOf(n, s.root, s.text, s.newline)
	last := -1
	for _, e := range n.entries {
		if !e.fresh {
			if i := slices.Index(n.at.entries, e); i >= 0 {
				last = i
			}
			continue
		}
		if n.kind == rawjson.Object && !n.unmerged {
			last = max(last, slices.IndexFunc(n.at.entries, func(e *entry) bool { return e.key != nil && isMerge(e.key) }))
		}
		at, err := s.behind(n, in, last)
		if err != nil {
			return err
		}
		if n.kind == rawjson.Object {
			s.put(at, at, written.appendMember(nil, e, n.at.column))
		} else {
			s.put(at, at, written.appendElement(nil, e.value, n.at.column))
		}
	}
	return nil
}

func (s *splicer) removeFromBlock(n *node, kept []bool) error {
	entries := n.at.entries
	first := slices.Index(kept, true)
	if first > 0 && !s.begins(entries[0]) {
		// The first entry that is left moves to the dash, unless that would remove a comment.
		until := 1
		if s.hasComment(entries[:first+1]) {
			s.put(entries[0].from, entries[0].end(), nil)
		} else {
			until = first
			s.put(entries[0].from, entries[first].from, nil)
		}
		entries, kept = entries[until:], kept[until:]
	}
	for i, e := range entries {
		if !kept[i] {
			if err := s.removeLines([]*entry{e}); err != nil {
				return err
			}
		}
	}
	return nil
}

// hasComment reports whether there is a comment between any two of the entries.
func (s *splicer) hasComment(entries []*entry) bool {
	for i := range len(entries) - 1 {
		if bytes.IndexByte(s.data[entries[i].end():entries[i+1].from], '#') >= 0 {
			return true
		}
	}
	return false
}

// behind returns where to insert after an entry of a block, or with -1 before all.
func (s *splicer) behind(n *node, in *entry, index int) (int, error) {
	first := n.at.entries[0]
	switch {
	case index >= 0:
	case !s.begins(first):
		return 0, errReencode
	case in == nil, n.at.start != n.at.content:
		return s.lineStart(first.from), nil
	default:
		// Before the comments on the first entry.
		return s.lineEnd(in.colon), nil
	}
	least := n.at.column
	if n.kind == rawjson.Array {
		least++
	}
	at := s.lineEnd(n.at.entries[index].end())
	// A comment with the indentation of the entry belongs to it.
	for at < len(s.data) {
		line := s.data[at:s.lineEnd(at)]
		comment := bytes.TrimLeft(line, " ")
		if len(comment) == 0 || comment[0] != '#' || len(line)-len(comment) < least {
			break
		}
		at = s.lineEnd(at)
	}
	return at, nil
}
