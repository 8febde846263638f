package merge

import (
	"encoding/json"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// Record is what reverting a merge needs beside what was added.
type Record struct {
	// Created are the field paths of what was made for what was put into it.
	Created []string `json:"created"`
	// Originals are what stood, by field path, where something else was put.
	Originals map[string]json.RawMessage `json:"originals"`
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
