package manifest

import (
	"bytes"
	"cmp"
	"errors"
	"slices"

	"go.yaml.in/yaml/v3"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// errReencode is the error for a change that cannot be spliced into the text.
var errReencode = errors.New("the text cannot be changed in place")

// edit replaces a part of a text.
type edit struct {
	start, end int
	text       []byte
}

// splicer turns the changes of a YAML document into edits of whole lines. Its results are not certain: the caller reads the new text
// again and compares it with what it should say.
type splicer struct {
	*text
	root    *yaml.Node
	newline string
	edits   []edit
}

// slot is where in a block a value is.
type slot struct {
	// from is where its key or dash starts, and behind the offset after the colon or the dash.
	from, behind int
	// column is that of the keys or dashes of the block.
	column int
	// end is the line in which something else starts.
	end int
}

// splice returns the text of a document with its changes. Its last line is ended, even if that of the document is not. The error is
// errReencode if the text cannot be changed in place.
func splice(data []byte, old, want rawjson.Value, newline string) ([]byte, error) {
	parsed, err := parseYAML(data)
	if err != nil {
		return nil, err
	}
	if !bytes.HasSuffix(data, []byte("\n")) {
		data = append(slices.Clone(data), newline...)
	}
	root := &pair{node: parsed.Content[0], old: old, want: want}
	s := splicer{text: newText(data), root: root.node, newline: newline}
	if err := s.change(root, nil, len(s.starts)-1); err != nil {
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

// change makes the edits for a value of the text, in the slot of a block or, for the whole document, in none. End is the line in which
// something else starts.
func (s *splicer) change(p *pair, in *slot, end int) error {
	if p.isEqual() {
		return nil
	}
	isBlock := p.node.Style&yaml.FlowStyle == 0 && len(p.node.Content) > 0 && p.old.Kind() == p.want.Kind()
	if !isBlock {
		return s.rewrite(p, in)
	}
	inner, err := p.inner()
	if err != nil {
		return err
	}
	if slices.ContainsFunc(inner, func(one pair) bool { return one.inherited && one.isRemoved() }) {
		return s.rewrite(p, in) // merge keys are written out
	}
	slots, err := s.slots(p.node, inner, end)
	if err != nil {
		return err
	}
	switch stays := slices.ContainsFunc(inner, func(p pair) bool { return p.node != nil && !p.isRemoved() }); {
	case p.want.Len() == 0 && in != nil && s.lineOf(in.behind) < p.node.Line-1:
		s.put(in.behind, in.behind, append([]byte{' '}, p.want...)) // comments stay
		return s.remove(inner, slots)
	case !stays:
		return s.rewrite(p, in)
	}
	for i := range inner {
		if inner[i].node != nil && !inner[i].isRemoved() {
			if err := s.change(&inner[i], &slots[i], slots[i].end); err != nil {
				return err
			}
		}
	}
	if err := s.remove(inner, slots); err != nil {
		return err
	}
	return s.insert(p, in, inner, slots)
}

// slots returns where the entries of a block are. Entries that are not in the text have empty slots.
func (s *splicer) slots(n *yaml.Node, inner []pair, end int) ([]slot, error) {
	column := n.Content[0].Column - 1
	if n.Kind == yaml.SequenceNode {
		first := n.Line - 1
		for n.Anchor != "" && first < n.Content[0].Line-1 && bytes.IndexByte(s.line(first), '-') != s.indent(first) {
			first++ // behind the line of the anchor
		}
		if column = n.Column - 1; n.Anchor != "" {
			column = s.indent(first)
		}
	}
	slots := make([]slot, len(inner))
	line := n.Line - 1
	var last *slot
	for i := range inner {
		p := &inner[i]
		if p.node == nil {
			continue
		}
		at := &slots[i]
		at.column = column
		if n.Kind == yaml.MappingNode {
			var begins, ok bool
			at.from, begins = s.offset(p.key)
			if at.behind, ok = s.colon(p.key); !begins || !ok || p.key.Column-1 != column {
				return nil, errReencode
			}
		} else {
			// The dash of an element may be in a line above it.
			next := p.node.Line - 1
			for next > line && !s.isDash(next, column) {
				next--
			}
			if !s.isDash(next, column) || last != nil && next == s.lineOf(last.from) {
				return nil, errReencode
			}
			at.from = s.start(next) + column
			at.behind = at.from + 1
		}
		if line = s.lineOf(at.from); last != nil {
			last.end = line
		}
		at.end, last = end, at
	}
	return slots, nil
}

// isDash reports whether a line has a dash at a column.
func (s *splicer) isDash(line, column int) bool {
	text := s.line(line)
	return len(text) > column && text[column] == '-' && (len(text) == column+1 || text[column+1] == ' ' || text[column+1] == '\t') &&
		len(bytes.Trim(text[:column], " -")) == 0
}

// last returns the line behind the last one of an entry. Comments and blank lines behind it do not belong to it.
func (s *splicer) last(n *yaml.Node, at *slot) int {
	first := s.lineOf(at.from)
	for n.Kind != yaml.AliasNode && n.Style&yaml.FlowStyle == 0 && len(n.Content) > 0 {
		n = n.Content[len(n.Content)-1]
	}
	end := at.end
	if n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		least := -1
		for line := n.Line; line < end; line++ {
			switch blank := len(bytes.TrimSpace(s.line(line))) == 0; {
			case blank:
			case least < 0:
				least = s.indent(line)
			case s.indent(line) < least:
				end = line
			}
		}
		keep := bytes.HasSuffix(bytes.TrimRight(s.line(n.Line-1), "123456789"), []byte("+")) // blank lines belong to it
		for !keep && end > n.Line && len(bytes.TrimSpace(s.line(end-1))) == 0 {
			end--
		}
		return end
	}
	for end > first+1 && s.isComment(end-1) {
		end--
	}
	return end
}

// rewrite writes a value anew, in the lines of its entry.
func (s *splicer) rewrite(p *pair, in *slot) error {
	if in == nil {
		return errReencode
	}
	end := s.start(s.last(p.node, in))
	rest := s.data[in.behind:end]
	first, _, _ := bytes.Cut(rest, []byte("\n"))
	first = bytes.TrimRight(first, "\r")
	comment := s.comment(p, first)
	if hasComment(rest[:len(first)-len(comment)]) || hasComment(rest[len(first):]) {
		return errReencode
	}
	value, err := p.build()
	if err != nil {
		return err
	}
	value.HeadComment, value.LineComment, value.FootComment = "", "", ""
	entry, mark := &yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{value}}, "-"
	if p.key != nil {
		entry, mark = &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{newString("k"), value}}, "k:"
	}
	written := s.style(value)
	text, err := written.encode(entry)
	if err != nil {
		return err
	}
	head, body, _ := bytes.Cut(bytes.TrimPrefix(text, []byte(mark)), []byte("\n"))
	head = append(slices.Clip(head), comment...)
	s.put(in.behind, end, slices.Concat(head, []byte(s.newline), written.lines(body, in.column)))
	return nil
}

// comment returns the comment at the end of the first line of an entry, with the space in front of it.
func (s *splicer) comment(p *pair, first []byte) []byte {
	known := p.node.LineComment
	if p.key != nil && known == "" {
		known = p.key.LineComment
	}
	content, found := bytes.CutSuffix(bytes.TrimRight(first, " \t"), []byte(known))
	if begin := bytes.TrimLeft(first, " \t"); len(begin) > 0 && begin[0] == '#' {
		content, found, known = nil, true, "#" // nothing is in front of it
	}
	if known == "" || !found {
		return nil
	}
	return first[len(bytes.TrimRight(content, " \t")):]
}

// hasComment reports whether there may be a comment in a text.
func hasComment(text []byte) bool {
	return slices.ContainsFunc([]string{" #", "\t#", "\n#"}, func(mark string) bool { return bytes.Contains(text, []byte(mark)) })
}

// style returns the style of a value, completed by that of the whole document.
func (s *splicer) style(n *yaml.Node) style {
	written := style{member: -1, sequence: -1, newline: s.newline}
	written.learn(n)
	written.learn(s.root)
	return written
}

// remove removes entries of a block.
func (s *splicer) remove(inner []pair, slots []slot) error {
	var behind *slot // the first entry that stays, in place of removed ones in front of it
	for i := range slices.Backward(inner) {
		p, at := &inner[i], &slots[i]
		switch {
		case p.node == nil:
		case !p.isRemoved():
			behind = at
		case s.indent(s.lineOf(at.from)) == at.from-s.start(s.lineOf(at.from)):
			s.put(s.start(s.lineOf(at.from)), s.start(s.last(p.node, at)), nil)
		case behind == nil || p.key == nil || hasComment(s.data[at.from:behind.from]):
			return errReencode
		default:
			// The first entry is in the line of a dash, and the first one that stays moves there.
			s.edits = slices.DeleteFunc(s.edits, func(e edit) bool { return at.from <= e.start && e.end <= behind.from })
			s.put(at.from, behind.from, nil)
		}
	}
	return nil
}

// insert inserts new entries into a block.
func (s *splicer) insert(p *pair, in *slot, inner []pair, slots []slot) error {
	written := s.style(p.node)
	column := slots[slices.IndexFunc(inner, func(p pair) bool { return p.node != nil })].column
	last := -1 // the entry of the text that is in front
	for i := range inner {
		one := &inner[i]
		if one.node != nil {
			last = i
			continue
		}
		if one.inherited && one.isEqual() {
			continue
		}
		value := newNode(one.want)
		entry := &yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{value}}
		if p.node.Kind == yaml.MappingNode {
			entry = &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{newString(one.name), value}}
		}
		text, err := written.encode(entry)
		if err != nil {
			return err
		}
		var at int
		if last >= 0 {
			at = s.behind(p.node, inner[last].node, &slots[last])
		} else if at, err = s.front(p.node, in); err != nil {
			return err
		}
		s.put(at, at, written.lines(text, column))
	}
	return nil
}

// behind returns where to insert after an entry of a block. A comment with the indentation of the entry belongs to it.
func (s *splicer) behind(block, n *yaml.Node, at *slot) int {
	least := at.column
	if block.Kind == yaml.SequenceNode {
		least++
	}
	line := s.last(n, at)
	for line < at.end && len(bytes.TrimSpace(s.line(line))) > 0 && s.indent(line) >= least {
		line++
	}
	return s.start(line)
}

// front returns where to insert before all entries of a block: before the comments on the first one.
func (s *splicer) front(block *yaml.Node, in *slot) (int, error) {
	at, ok := s.offset(block)
	switch line := s.lineOf(at); {
	case !ok || in == nil || s.lineOf(in.behind) == line || block.Anchor != "" || block.Kind == yaml.MappingNode:
		return 0, errReencode
	default:
		return s.start(s.lineOf(in.behind) + 1), nil
	}
}
