// Package manifest finds the pods in files of Kubernetes manifests and changes them in place.
//
// What a change does not touch keeps every byte: other documents, comments, blank lines, the order of keys, quotes, line ends. A
// change is spliced into the text at the positions of the YAML nodes. The result is read again, as kubectl would read it, and
// compared with what the API server's JSON patch library makes of the document. If they differ, the document is encoded anew from
// its nodes, and if these differ too, there is an error and no result.
package manifest

import (
	"bytes"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// File is a file of manifests. It is not safe for concurrent use.
type File struct {
	// Name is what the file is called in messages.
	Name string
	// Objects are the objects in the file, also those in lists, in their order.
	Objects []*Object

	data      []byte
	documents []*document
}

// Read reads a file: YAML documents, JSON values, or both. Documents without content are skipped. A document that cannot be
// read is an object with Unreadable. The text is kept and must not be changed.
func Read(name string, data []byte, workloads *Workloads) *File {
	return ReadRendered(name, data, workloads, nil)
}

// Rendered says what a text is rendered from, as far as it is known.
type Rendered struct {
	// File is what documents without a comment "# Source: …" of helm template are rendered from.
	File string
	// Chart is the directory of the chart whose name such comments begin with.
	Chart string
}

// ReadRendered is Read for what a command has rendered from other files, whose names objects then have; nil is for a text that is not.
func ReadRendered(name string, data []byte, workloads *Workloads, rendered *Rendered) *File {
	f, aliases := &File{Name: name, data: data}, NewExpansion(len(data))
	chunks, err := split(data)
	if err != nil {
		d := &document{number: 1, part: part{line: 1}}
		f.documents = append(f.documents, d)
		d.unreadable = err
	}
	for i := range chunks {
		for _, part := range chunks[i].parts(data) {
			d := &document{number: len(f.documents) + 1, part: part, text: data[part.start:part.end]}
			d.indent = utf8.RuneCount(data[bytes.LastIndexByte(data[:part.start], '\n')+1 : part.start])
			if rendered != nil {
				d.findTemplate(rendered)
			}
			d.unreadable = d.read(workloads.Holds, aliases)
			f.documents = append(f.documents, d)
		}
	}
	for _, d := range f.documents {
		file, source := f.Name, f.source(d.number, len(f.documents) > 1)
		if d.template != "" {
			file, source = d.template, d.template
		}
		objects := []*Object{{Document: d.number, NoPod: "the document cannot be read", Odd: true, document: d}}
		if d.unreadable == nil {
			objects = d.objects(workloads)
		} else {
			why := d.unreadable.diagnostic(source)
			objects[0].Unreadable = &why
		}
		for _, o := range objects {
			o.File, o.Rendered, o.Source = file, d.template != "", source
			o.NoLines = o.Rendered && d.template == rendered.File
		}
		f.Objects = append(f.Objects, objects...)
	}
	return f
}

// findTemplate finds the comment in front of a document that names the template it is rendered from. Lines count from the one behind it.
func (d *document) findTemplate(rendered *Rendered) {
	d.template = rendered.File
	line := 0
	for text := range bytes.Lines(d.text) {
		if line++; hasContent(text) {
			return
		}
		if template, ok := bytes.CutPrefix(bytes.TrimSpace(text), []byte("# Source: ")); ok {
			d.template, d.line = string(template), 1-line
			if _, inside, ok := strings.Cut(d.template, "/"); ok && rendered.Chart != "" {
				d.template = path.Join(rendered.Chart, inside)
			}
			return
		}
	}
}

// source returns the name of the file, with # and the number of the document if it has several.
func (f *File) source(number int, several bool) string {
	if !several {
		return f.Name
	}
	return f.Name + "#" + strconv.Itoa(number)
}

// Text returns the text of the file with all changes. The error is a diagnostic.List with the documents that could not be changed.
func (f *File) Text() ([]byte, error) {
	var (
		out   []byte
		end   int
		found diagnostic.List
	)
	texts := make([][]byte, len(f.documents))
	for i, d := range f.documents {
		if texts[i] = d.text; len(d.changes) == 0 {
			continue
		}
		text, err := d.edited(newline(f.data))
		if err != nil {
			found = append(found, diagnostic.Diagnostic{Severity: diagnostic.Error, Source: f.source(d.number, len(f.documents) > 1), Message: err.Error()})
			continue
		}
		out = append(append(out, f.data[end:d.start]...), text...)
		end, texts[i] = d.end, text
	}
	if len(found) > 0 {
		return nil, found
	}
	if end == 0 {
		return f.data, nil
	}
	out = append(out, f.data[end:]...)
	if !holds(out, texts) {
		return nil, diagnostic.List{{Severity: diagnostic.Error, Source: f.Name, Message: errMangled.Error()}}
	}
	return out, nil
}

// holds reports whether a file has these documents and no others.
func holds(data []byte, texts [][]byte) bool {
	chunks, err := split(data)
	if err != nil {
		return false
	}
	for i := range chunks {
		for _, part := range chunks[i].parts(data) {
			// A document may have been moved to the line below its marker.
			if len(texts) == 0 || !bytes.Equal(data[part.start:part.end], bytes.TrimLeft(texts[0], "\r\n")) &&
				!bytes.Equal(data[part.start:part.end], texts[0]) {
				return false
			}
			texts = texts[1:]
		}
	}
	return len(texts) == 0
}

// IsJSON reports whether the file holds JSON and no YAML.
func (f *File) IsJSON() bool {
	return len(f.documents) > 0 && !slices.ContainsFunc(f.documents, func(d *document) bool { return !d.json })
}

// HasContent reports whether there is a document in the file.
func (f *File) HasContent() bool { return len(f.documents) > 0 }

// Marked reports whether the first document of the file has a marker (---) in front
// of it.
func (f *File) Marked() bool {
	for line := range bytes.Lines(bytes.TrimPrefix(f.data, []byte("\ufeff"))) {
		switch {
		case isMarker(line, "---"):
			return true
		case hasContent(line) && line[0] != '%':
			return false
		}
	}
	return false
}

// newline returns what ends the lines of a text.
func newline(text []byte) string {
	if i := bytes.IndexByte(text, '\n'); i > 0 && text[i-1] == '\r' {
		return "\r\n"
	}
	return "\n"
}
