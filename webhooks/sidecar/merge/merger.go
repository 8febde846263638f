// Package merge merges a partial object into the JSON text of a pod, by rules for each
// field. Every change is an operation of a JSON patch and a splice of the text.
//
// It also has the field paths that find a value again when others have changed the pod,
// and the canonical form in which the API server writes a value.
package merge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// Merger merges what one profile says into a pod.
type Merger struct {
	Editor *Editor
	// Earlier are the field paths of what an earlier call has added. A different value there
	// is not a conflict.
	Earlier map[string]bool
	// Added are the field paths of what it adds now, and of what it has added before
	// and is still in place.
	Added []string
	// OnConflict is called where the pod has something else, with the path of the field for
	// people and a message.
	OnConflict func(path, message string)
	// OnClash is called instead of OnConflict for duplicates that the API server refuses.
	// Nil stands for OnConflict.
	OnClash func(path, message string)

	// Record notes what is created and what stood where something else is put.
	Record *Record
}

// Object merges an object of a template into one of the pod.
func (m *Merger) Object(at Path, own, template rawjson.Value, rules *Rule) error {
	if key, twice := own.DuplicateKey(); twice {
		return fmt.Errorf("%s: %w", at.Display, &rawjson.DuplicateKeyError{Key: key})
	}
	for nameText, value := range template.Members() {
		name := nameText.Text()
		if rules != nil && rules.contradicts != nil && rules.contradicts(own, name, value) {
			m.OnConflict(at.Member(name).Display, "the API server refuses the value of the profile together with other fields of the pod")
			continue
		}
		if rules.excludes(own, name) {
			m.OnConflict(at.Display, fmt.Sprintf("the profile sets %q, but the pod sets another of %s", name, strings.Join(rules.oneOf, ", ")))
			continue
		}
		if err := m.Member(at.Member(name), own, name, value, rules.Field(name)); err != nil {
			return err
		}
	}
	return nil
}

// Member merges one member into the object own.
func (m *Merger) Member(at Path, object rawjson.Value, name string, value rawjson.Value, r *Rule) error {
	own := object.Get(name)
	if r != nil && r.disjointFrom != "" {
		value = m.withoutUsedPaths(at, object.Get(r.disjointFrom), value)
	}
	if r != nil && r.pair != "" {
		value = m.withoutUnpaired(at, r.pair, object.Get(r.pair), own, value)
	}
	switch {
	case value.Kind() == rawjson.Null:
		return nil
	case own == nil:
		value = m.deduplicate(at, value, r)
		m.noteAdded(at.FieldPath, value, r)
		return m.Editor.Add(at.Pointer, object, name, json.RawMessage(value))
	case own.Kind() == rawjson.Null, r != nil && r.apiDefault != "" && r.apiDefault == string(own) && string(own) != string(value):
		value = m.deduplicate(at, value, r)
		m.Record.NoteOriginal(at.FieldPath, json.RawMessage(bytes.Clone(own)))
		m.noteAdded(at.FieldPath, value, r)
		return m.Editor.Replace(at.Pointer, own, json.RawMessage(value))
	case own.Kind() == rawjson.Object && value.Kind() == rawjson.Object && (r == nil || !r.IsAtomic):
		return m.Object(at, own, value, r)
	case own.Kind() == rawjson.Array && value.Kind() == rawjson.Array && r.IsMergedList():
		return m.list(at, own, m.deduplicate(at, value, r), r)
	case m.Earlier[at.FieldPath]:
		m.Added = append(m.Added, at.FieldPath)
	case !r.equal(own, value):
		m.OnConflict(at.Display, describeConflict(own, value))
	}
	return nil
}

// describeConflict returns the message for two values that differ. It shows only strings, numbers
// and booleans: an object may hold secrets.
func describeConflict(own, value rawjson.Value) string {
	for _, v := range [...]rawjson.Value{own, value} {
		if kind := v.Kind(); kind == rawjson.Array || kind == rawjson.Object {
			return "the pod has a different value"
		}
	}
	return fmt.Sprintf("the pod has %s, but the profile sets %s", Describe(own), Describe(value))
}

// deduplicate returns a value without elements that its lists have twice. Rendering can
// make two elements equal.
func (m *Merger) deduplicate(at Path, value rawjson.Value, r *Rule) rawjson.Value {
	switch {
	case r == nil || value.Len() == 0:
		return value
	case value.Kind() == rawjson.Object && !r.IsAtomic && len(r.Fields) > 0:
		dst := []byte{'{'}
		for name, below := range value.Members() {
			if len(dst) > 1 {
				dst = append(dst, ',')
			}
			text := name.Text()
			dst = append(append(append(dst, name...), ':'), m.deduplicate(at.Member(text), below, r.Field(text))...)
		}
		return append(dst, '}')
	case value.Kind() != rawjson.Array || !r.IsMergedList():
		return value
	}
	first := make(map[string]rawjson.Value, value.Len())
	return FilterElements(value, func(i int, element rawjson.Value) bool {
		key := r.meaning(element)
		other, twice := first[key]
		if twice && !r.IsSet && !r.isSame(other, element) {
			m.OnConflict(at.Element(i, "").Display, "the profile has two different entries with the same "+r.KeyNames())
		}
		if !twice {
			first[key] = element
		}
		return !twice
	})
}

// withoutUsedPaths returns a list of mounts or devices without those whose path the other
// list uses.
func (m *Merger) withoutUsedPaths(at Path, other, value rawjson.Value) rawjson.Value {
	if other.Len() == 0 {
		return value
	}
	path := func(v rawjson.Value) string {
		return CleanPath(v.Get("mountPath").Text() + v.Get("devicePath").Text())
	}
	taken := make(map[string]bool)
	for _, theirs := range other.Elements() {
		taken[path(theirs)] = true
	}
	return orNull(FilterElements(value, func(_ int, element rawjson.Value) bool {
		if taken[path(element)] {
			m.OnConflict(at.Display, fmt.Sprintf("the container already has a mount or device at %q", strict.Cut(path(element), 64)))
		}
		return !taken[path(element)]
	}))
}

// withoutUnpaired returns requests or limits without the resources for which the pod sets
// only the other of the two.
func (m *Merger) withoutUnpaired(at Path, pair string, other, own, value rawjson.Value) rawjson.Value {
	if other.Len() == 0 {
		return value
	}
	return orNull(filterMembers(value, func(name string, _ rawjson.Value) bool {
		unpaired := own.Get(name) == nil && other.Get(name) != nil
		if unpaired {
			m.OnConflict(at.Member(name).Display, "the pod sets this resource only in "+pair)
		}
		return !unpaired
	}))
}

// orNull returns null for an empty list or object.
func orNull(v rawjson.Value) rawjson.Value {
	if v.Len() == 0 {
		return rawjson.Value("null")
	}
	return v
}

// list merges the elements of a list of the template into one of the pod.
func (m *Merger) list(at Path, own, template rawjson.Value, r *Rule) error {
	count := own.Len()
	there := newElementIndex(own, r)
	before := m.nextElements(at, template, there, r)
	var inserted []int
	for i, value := range template.Elements() {
		key := r.Key(value)
		index, element := -1, rawjson.Value(nil)
		if found, ok := there[r.meaning(value)]; ok {
			index, element = found.index, found.element
		}
		if index >= 0 && r.clean != nil {
			key = r.Key(element) // by which it is found again
		}
		switch {
		case index < 0 && r.maxItems > 0 && count >= r.maxItems:
			m.OnConflict(at.Display, fmt.Sprintf("the pod has %d entries, at most %d are allowed, and the profile adds %s", own.Len(), r.maxItems, Describe(value)))
		case index < 0 && m.isDuplicate(at, own, value, r):
		case index < 0:
			count++
			m.Added = append(m.Added, at.FieldPath+"/"+key)
			if before == nil || before[i].element == nil {
				if err := m.Editor.Push(at.Pointer+"/-", own, json.RawMessage(value)); err != nil {
					return err
				}
				continue
			}
			place := before[i].index
			for _, other := range inserted {
				if other <= before[i].index {
					place++
				}
			}
			inserted = append(inserted, before[i].index)
			if err := m.Editor.Insert(at.Pointer, place, before[i].element, json.RawMessage(value)); err != nil {
				return err
			}
		case m.Earlier[at.FieldPath+"/"+key]:
			m.Added = append(m.Added, at.FieldPath+"/"+key)
		case r.IsSet:
		case !r.IsAtomic && element.Kind() == rawjson.Object && value.Kind() == rawjson.Object:
			if r.clean != nil {
				value = RemoveMembers(value, r.mapKeys...) // what is there may have another text
			}
			if err := m.Object(at.Element(index, key), element, value, r); err != nil {
				return err
			}
		case !r.isSame(element, value):
			m.OnConflict(at.Element(index, key).Display, "the pod has a different entry with the same "+r.KeyNames())
		}
	}
	return nil
}

// nextElements returns, for each element of a template, the element of the pod in front of which
// it goes: the next one that an earlier call added. It is nil for lists whose order has no meaning.
func (m *Merger) nextElements(at Path, template rawjson.Value, there elementIndex, r *Rule) []indexedElement {
	if !r.isOrdered || len(m.Earlier) == 0 {
		return nil
	}
	next := make([]indexedElement, template.Len())
	for i, value := range template.Elements() {
		if found, ok := there[r.meaning(value)]; ok && m.Earlier[at.FieldPath+"/"+r.Key(value)] {
			for k := i - 1; k >= 0 && next[k].element == nil; k-- {
				next[k] = found
			}
		}
	}
	return next
}

// isDuplicate reports whether another element of a list has the same value of a member
// that must be unique.
func (m *Merger) isDuplicate(at Path, own, value rawjson.Value, r *Rule) bool {
	if r.unique == "" || value.Get(r.unique).Text() == "" {
		return false
	}
	text := value.Get(r.unique).Text()
	for i, element := range own.Elements() {
		if element.Get(r.unique).Is(text) {
			clash := m.OnClash
			if clash == nil {
				clash = m.OnConflict
			}
			clash(at.Element(i, "").Member(r.unique).Display, fmt.Sprintf("the profile adds another entry with the %s %s", r.unique, Describe(value.Get(r.unique))))
			return true
		}
	}
	return false
}

// noteAdded records what is added where nothing was: every leaf, because others may add
// beside it, and the objects and lists around them as created.
func (m *Merger) noteAdded(fieldPath string, value rawjson.Value, r *Rule) {
	switch {
	case value.Kind() == rawjson.Object && value.Len() > 0 && (r == nil || !r.IsAtomic):
		m.Record.Created = append(m.Record.Created, fieldPath)
		for name, below := range value.Members() {
			m.noteAdded(fieldPath+"/"+Escape(name.Text()), below, r.Field(name.Text()))
		}
	case value.Kind() == rawjson.Array && r.IsMergedList():
		m.Record.Created = append(m.Record.Created, fieldPath)
		for _, below := range value.Elements() {
			m.Added = append(m.Added, fieldPath+"/"+r.Key(below))
		}
	default:
		m.Added = append(m.Added, fieldPath)
	}
}

// Record is what reverting a merge needs beside what was added.
type Record struct {
	// Created are the field paths of what was made for what was put into it.
	Created []string `json:"created,omitempty"`
	// Originals are what stood, by field path, where something else was put.
	Originals map[string]json.RawMessage `json:"originals,omitempty"`
}

// NoteOriginal notes what stood where something else is put. What was noted first is
// what was there before.
func (r *Record) NoteOriginal(fieldPath string, value json.RawMessage) {
	if r.Originals == nil {
		r.Originals = make(map[string]json.RawMessage)
	}
	if _, known := r.Originals[fieldPath]; !known {
		r.Originals[fieldPath] = value
	}
}

// NoteCreated notes that an object or list is made, where nothing was or null.
func (r *Record) NoteCreated(fieldPath string, was rawjson.Value) {
	r.Created = append(r.Created, fieldPath)
	if was.Kind() == rawjson.Null {
		r.NoteOriginal(fieldPath, json.RawMessage("null"))
	}
}
