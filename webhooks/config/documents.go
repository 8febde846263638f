package config

import (
	"fmt"
	"path/filepath"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// Baselines reads the PolicyBaselines of a file, with the names of objects, which a Config does not have. Other documents are errors.
func Baselines(path string) (all []v1alpha1.PolicyBaseline, found diagnostic.List) {
	documents, found := Documents(path)
	d := newDecoder(&tree{limits: defaultLimits()})
	for i := range documents {
		o := object{decoder: d, source: documents[i].Source, file: documents[i].File}
		o.fields, _ = documents[i].Value.(map[string]any)
		kind := typedKinds[policyBaseline].version.WithKind(policyBaseline)
		if o.fields["apiVersion"] != kind.GroupVersion().String() || o.fields["kind"] != kind.Kind {
			o.report(problem{field: "kind", message: "the document is not a PolicyBaseline"})
			continue
		}
		o.label = o.displayName(kind)
		var b v1alpha1.PolicyBaseline
		if o.decodeInto(&b) {
			all = append(all, b)
		}
	}
	return all, append(found, d.found...)
}

// Document is a decoded document of a file, of any kind.
type Document struct {
	// File is the path of the file, to be opened from where Documents was called.
	File string
	// Source is File, with slashes, and behind a # the number of the document
	// where the file has several.
	Source string
	// Value is in the types that a JSON decoder of Kubernetes gives:
	// map[string]any, []any, string, int64, float64 and bool.
	Value any
}

// Documents reads a file, or the files below a directory that Load would read, with the
// same strictness and limits. The diagnostics are errors about documents that are left out.
func Documents(path string) ([]Document, diagnostic.List) {
	t := readPaths([]string{path}, nil)
	found := t.found
	report := func(source string, p problem) {
		found = append(found, diagnostic.Diagnostic{Severity: diagnostic.Error, Source: source, Field: p.field, Message: p.message, Hint: p.hint})
	}
	var all []Document
	p := newParser(t.limits)
	for _, f := range t.files {
		if p.budget < 0 {
			break // reported already
		}
		documents := p.documents(f)
		for i, d := range documents {
			source := f.path
			if len(documents) > 1 {
				source = fmt.Sprintf("%s#%d", source, i+1)
			}
			for _, bad := range d.problems {
				report(source, bad)
			}
			if d.value != nil && len(d.problems) == 0 {
				all = append(all, Document{File: filepath.FromSlash(f.path), Source: source, Value: d.value})
			}
		}
		if len(all) > t.limits.documents {
			report(filepath.ToSlash(path), problem{message: fmt.Sprintf("there are more than %d documents", t.limits.documents)})
			break
		}
	}
	return all, found
}
