package registration

import (
	"bytes"
	_ "embed" // for the templates
	"slices"
	"strings"
	"text/template"

	"sigs.k8s.io/yaml"
)

// Document is one document, or what a template made of several.
type Document struct {
	part Part
	// text is YAML with comments, and object what is to become YAML, under the comment, if there is no text.
	text, comment string
	object        any
}

// Part is a group of documents of which an installation has its own place for
// each.
type Part string

// The parts, in the order of their documents.
const (
	// PartRights are who Gatehouse is to the API server, and what it may do there.
	PartRights Part = "rights"
	// PartGuard is what the API server itself enforces beyond RBAC: what Gatehouse may write, and who may grant.
	PartGuard Part = "guard"
	// PartCertificates are what cert-manager needs.
	PartCertificates Part = "certificates"
	// PartRegistration are the webhook configurations.
	PartRegistration Part = "registration"
)

// Parts are all parts, in the order of their documents.
func Parts() []Part {
	return []Part{PartRights, PartGuard, PartCertificates, PartRegistration}
}

// Only are the documents of some parts, in the order in which they are.
func Only(documents []Document, parts ...Part) []Document {
	var some []Document
	for _, d := range documents {
		if slices.Contains(parts, d.part) {
			some = append(some, d)
		}
	}
	return some
}

//go:embed documents.yaml.tmpl
var templates string

// render makes the documents of a part by a template.
func render(part Part, name string, facts any) (Document, error) {
	all, err := template.New("").Funcs(template.FuncMap{
		"quoted": func(list []string) string { return `"` + strings.Join(list, `", "`) + `"` },
		"yaml": func(value any) (string, error) {
			text, err := yaml.Marshal(value)
			return strings.TrimSuffix(string(text), "\n"), err
		},
	}).Parse(templates)
	if err != nil {
		return Document{}, err
	}
	var out strings.Builder
	err = all.ExecuteTemplate(&out, name, facts)
	return Document{part: part, text: strings.TrimPrefix(out.String(), "---\n")}, err
}

// YAML writes the documents as a YAML stream, with their comments, under a
// header comment.
func YAML(header string, documents []Document) ([]byte, error) {
	var out bytes.Buffer
	writeComment(&out, header)
	for i, d := range documents {
		if i > 0 || header != "" {
			out.WriteString("---\n")
		}
		if d.text != "" {
			out.WriteString(d.text)
			continue
		}
		writeComment(&out, d.comment)
		text, err := yaml.Marshal(d.object)
		if err != nil {
			return nil, err
		}
		out.Write(text)
	}
	return out.Bytes(), nil
}

func writeComment(out *bytes.Buffer, comment string) {
	if comment == "" {
		return
	}
	for line := range strings.SplitSeq(comment, "\n") {
		out.WriteString(strings.TrimRight("# "+line, " ") + "\n")
	}
}
