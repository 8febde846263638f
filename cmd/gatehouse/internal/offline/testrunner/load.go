package testrunner

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
)

// testKind is the kind of the documents that are read.
const testKind = "Test"

// Load reads the cases of all Test documents in files and directories, in the order of the paths, files, documents and cases.
// Documents of other kinds are skipped. Without any Test in a path there is an error, unless that is accepted. With errors the cases are only good for further checks, by Names and Runner.
func Load(paths []string, allowEmpty bool) ([]*Case, diagnostic.List) {
	l := loader{documents: map[string]string{}}
	for _, path := range paths {
		documents, found := config.Documents(filepath.Clean(path))
		l.found = append(l.found, found...)
		before := l.tests
		for _, d := range documents {
			l.document(d.File, d.Source, d.Value)
		}
		if l.tests == before && len(found) == 0 && !allowEmpty {
			l.found = append(l.found, diagnostic.Diagnostic{
				Severity: diagnostic.Error, Source: filepath.ToSlash(path), Message: "there is no document of kind Test here",
				Hint: "a test has apiVersion " + v1alpha1.GroupVersion.String() + " and kind " + testKind,
			})
		}
	}
	l.found.Sort()
	return l.cases, l.found
}

// loader collects the cases and errors of documents.
type loader struct {
	checker strict.Checker
	// documents has the source of each test, by its name.
	documents map[string]string
	tests     int
	cases     []*Case
	found     diagnostic.List
}

// document is the document that is being read.
type document struct {
	*loader
	file, source string
	test         v1alpha1.Test
	about        *About
	context      *Context
}

func (d *document) report(field, message, hint string) {
	object := testKind
	if d.test.Metadata.Name != "" {
		object += "/" + strict.Printable(d.test.Metadata.Name)
	}
	d.found = append(d.found, diagnostic.Diagnostic{Severity: diagnostic.Error, Source: d.source, Object: object, Field: field, Message: message, Hint: hint})
}

// document reads a document if it is a Test, or the items of a list.
func (l *loader) document(file, source string, value any) {
	fields, ok := value.(map[string]any)
	if !ok {
		return
	}
	given, _ := fields["kind"].(string)
	if items, ok := fields["items"].([]any); ok && strings.HasSuffix(given, "List") {
		separator := "#"
		if strings.Contains(source, "#") {
			separator = "/"
		}
		for i, item := range items {
			l.document(file, fmt.Sprintf("%s%sitems[%d]", source, separator, i), item)
		}
		return
	}
	apiVersion, _ := fields["apiVersion"].(string)
	d := document{loader: l, file: file, source: source}
	if !d.isTest(apiVersion, given) {
		return
	}
	l.tests++
	d.read(fields)
}

// isTest reports whether a document is a test. What was most likely meant as one is an error: a test that is skipped never fails.
func (d *document) isTest(apiVersion, kind string) bool {
	version, err := schema.ParseGroupVersion(apiVersion)
	switch {
	case kind == testKind && version == v1alpha1.GroupVersion:
		return true
	case kind == testKind && (apiVersion == "" || err != nil || version.Group == v1alpha1.GroupVersion.Group):
		d.report("apiVersion", fmt.Sprintf("%q is not a version of %s that is read", strict.Cut(apiVersion, mostShown), testKind), "write "+v1alpha1.GroupVersion.String())
		d.tests++
	case version.Group == v1alpha1.GroupVersion.Group:
		if _, near := diagnostic.Nearest(kind, testKind); near {
			d.report("kind", fmt.Sprintf("%q is not a kind of %s", strict.Cut(kind, mostShown), version.Group), fmt.Sprintf("did you mean %q?", testKind))
			d.tests++
		}
	}
	return false
}

// mostShown bounds a value in a message, in characters.
const mostShown = 60

func (d *document) read(fields map[string]any) {
	if metadata, ok := fields["metadata"].(map[string]any); ok {
		d.test.Metadata.Name, _ = metadata["name"].(string) // for what is reported
	}
	if !d.decode(fields) {
		return
	}
	if first, twice := d.documents[d.test.Metadata.Name]; twice {
		d.report("metadata.name", fmt.Sprintf("%q is the name of another test, in %q", strict.Cut(d.test.Metadata.Name, mostShown), first), "give one of the two another name")
	} else if d.test.Metadata.Name != "" {
		d.documents[d.test.Metadata.Name] = d.source
	}
	if len(d.test.Cases) == 0 {
		d.report("cases", "is missing or empty, so nothing is tested", "")
	}
	if d.test.Policies != nil {
		d.about = &About{names: d.test.Policies}
	}
	d.readContext()
	names := map[string]int{}
	for i := range d.test.Cases {
		d.readCase(i, names)
	}
}

// compare reports what does not fit a type, and reports whether all fits.
func (d *document) compare(of reflect.Type, fields map[string]any, at string) bool {
	found := d.checker.Compare(of, fields, at, strict.Options{})
	for _, f := range found {
		d.report(f.Field, f.Message, f.Hint)
	}
	return len(found) == 0
}

// decode decodes a test strictly, and reports whether it is valid.
func (d *document) decode(fields map[string]any) bool {
	raw, err := json.Marshal(fields)
	if err != nil {
		d.report("", err.Error(), "")
		return false
	}
	if !d.compare(reflect.TypeFor[v1alpha1.Test](), fields, "") {
		return false
	}
	if err := json.Unmarshal(raw, &d.test); err != nil {
		d.report("", err.Error(), "")
		return false
	}
	return true
}

// Select returns the cases whose title matches.
func Select(all []*Case, match func(title string) bool) []*Case {
	return slices.DeleteFunc(slices.Clone(all), func(c *Case) bool { return !match(c.Title()) })
}
