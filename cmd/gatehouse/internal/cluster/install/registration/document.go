package registration

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// Document is one document that was made.
type Document struct {
	comment string // for people, may have several lines
	object  any
	// reasons are comments for people too: of a role one for each of its rules, nil
	// of everything else.
	reasons []string
	part    Part
}

// Part is a group of documents of which an installation has its own place for
// each.
type Part string

// The parts, in the order of their documents.
const (
	// PartRights are who Gatehouse is to the API server, and what it may do there.
	PartRights Part = "rights"
	// PartGuard is what the API server enforces of what Gatehouse may do beyond RBAC.
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

// YAML writes the documents as a YAML stream, with their comments, under a
// header comment.
func YAML(header string, documents []Document) ([]byte, error) {
	var out bytes.Buffer
	writeComment(&out, header)
	for i, d := range documents {
		if i > 0 || header != "" {
			out.WriteString("---\n")
		}
		writeComment(&out, d.comment)
		raw, err := json.Marshal(d.object)
		if err != nil {
			return nil, err
		}
		var value map[string]any
		if err := json.Unmarshal(raw, &value); err != nil {
			return nil, err
		}
		delete(value, "status") // what a server fills in
		delete(value, "preferences")
		text, err := yaml.Marshal(value)
		if err != nil {
			return nil, err
		}
		writeCommented(&out, string(text), d.reasons)
	}
	return out.Bytes(), nil
}

// writeCommented writes a document with a comment in front of each of its rules.
func writeCommented(out *bytes.Buffer, text string, reasons []string) {
	const rule = "- apiGroups:" // the first field of each, and of nothing else in a role
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, rule) && len(reasons) > 0 {
			writeComment(out, reasons[0])
			reasons = reasons[1:]
		}
		out.WriteString(line)
	}
}

func writeComment(out *bytes.Buffer, comment string) {
	if comment == "" {
		return
	}
	for line := range strings.SplitSeq(comment, "\n") {
		out.WriteString(strings.TrimRight("# "+line, " ") + "\n")
	}
}
