package profile

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"reflect"

	corev1 "k8s.io/api/core/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/merge"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/podtext"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/template"
)

// Rendered is what a profile adds to one pod, or to every pod if nothing in it
// depends on the pod.
type Rendered struct {
	Revision       string
	Elements       [podtext.NumLists][]Part
	Metadata, Spec rawjson.Value
	App            []rawjson.Value
	// HasPorts is true if an element declares a port that is in use while the pod's own
	// containers run.
	HasPorts bool
	// Arrays are the elements of each list as an array.
	Arrays [podtext.NumLists]any
}

// Part is one rendered element.
type Part struct {
	Raw json.RawMessage
	// Value is raw as the value of a patch operation, boxed once.
	Value any
	Ports podtext.Ports
}

// renderFixed renders what is the same for every pod, once.
func (c *compiler) renderFixed(p *Profile) {
	parts := p.Trees()
	for _, t := range parts {
		if _, static := t.Static(); !static {
			return
		}
	}
	fixed, err := p.Render(func(t *template.Tree) ([]byte, error) {
		raw, _ := t.Static()
		return raw, nil
	})
	if err != nil {
		c.error("spec.template", "", "%v", err)
		return
	}
	p.Fixed = fixed
}

// Trees returns all trees of the profile, in a fixed order.
func (p *Profile) Trees() []*template.Tree {
	var all []*template.Tree
	for l := range podtext.NumLists {
		for i := range p.Elements[l] {
			all = append(all, p.Elements[l][i].tree)
		}
	}
	for _, t := range [...]*template.Tree{p.metadata, p.spec} {
		if t != nil {
			all = append(all, t)
		}
	}
	for i := range p.Additions {
		all = append(all, p.Additions[i].tree)
	}
	return all
}

// Render renders every tree of the profile with a function, in the canonical form.
func (p *Profile) Render(render func(*template.Tree) ([]byte, error)) (*Rendered, error) {
	r := new(Rendered)
	sum := sha256.New()
	canonical := func(t *template.Tree, as reflect.Type) ([]byte, error) {
		raw, err := render(t)
		if err != nil {
			return nil, err
		}
		return merge.Canonicalize(raw, as), nil
	}
	for l := range podtext.NumLists {
		for i := range p.Elements[l] {
			e := &p.Elements[l][i]
			raw, err := canonical(e.tree, elementType(l))
			if err != nil {
				return nil, err
			}
			made := Part{Raw: raw, Value: json.RawMessage(raw)}
			if l != podtext.Volumes {
				if made.Ports, err = podtext.ReadPorts(raw, e.Name); err != nil {
					return nil, fmt.Errorf("container %q: %w", e.Name, err)
				}
			}
			r.HasPorts = r.HasPorts || e.RunsWithOthers(l) && len(made.Ports) > 0
			r.Elements[l] = append(r.Elements[l], made)
			digest(sum, raw)
		}
		r.Arrays[l] = Array(r.Elements[l])
		digest(sum, nil)
	}
	for _, field := range []struct {
		tree *template.Tree
		as   reflect.Type
		into *rawjson.Value
	}{{p.metadata, reflect.TypeFor[v1alpha1.SidecarTemplateMetadata](), &r.Metadata}, {p.spec, reflect.TypeFor[corev1.PodSpec](), &r.Spec}} {
		if field.tree == nil {
			continue
		}
		raw, err := canonical(field.tree, field.as)
		if err != nil {
			return nil, err
		}
		*field.into = raw
		digest(sum, raw)
	}
	for i := range p.Additions {
		raw, err := canonical(p.Additions[i].tree, reflect.TypeFor[corev1.Container]())
		if err != nil {
			return nil, err
		}
		r.App = append(r.App, raw)
		digest(sum, raw)
	}
	const digits = 12 // 48 bits: enough to tell the revisions of one profile apart
	r.Revision = hex.EncodeToString(sum.Sum(nil))[:digits]
	return r, nil
}

func digest(sum hash.Hash, raw []byte) {
	_, _ = sum.Write(raw) // never fails
	_, _ = sum.Write([]byte{0})
}

// Array writes elements as a JSON array.
func Array(parts []Part) json.RawMessage {
	dst := []byte{'['}
	for i := range parts {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, parts[i].Raw...)
	}
	return append(dst, ']')
}

func elementType(l podtext.List) reflect.Type {
	if l == podtext.Volumes {
		return reflect.TypeFor[corev1.Volume]()
	}
	return reflect.TypeFor[corev1.Container]()
}
