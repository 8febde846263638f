package sidecar

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"reflect"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/template"
	corev1 "k8s.io/api/core/v1"
)

// rendered is what a profile adds to one pod, or to every pod if nothing in it
// depends on the pod.
type rendered struct {
	revision       string
	elements       [lists][]part
	metadata, spec rawjson.Value
	app            []rawjson.Value
	// ports tells whether any element declares a port that is in use while the
	// pod's own containers run.
	ports bool
	// arrays are the elements of each list as an array.
	arrays [lists]any
}

// part is one rendered element.
type part struct {
	raw json.RawMessage
	// value is raw as the value of a patch operation, boxed once.
	value  any
	ports  portList
	volume *corev1.Volume
}

// fix renders what is the same for every pod, once.
func (c *compiler) fix(p *profile) {
	parts := p.parts()
	for _, t := range parts {
		if _, static := t.Static(); !static {
			return
		}
	}
	fixed, err := p.assemble(func(t *template.Tree) ([]byte, error) {
		raw, _ := t.Static()
		return raw, nil
	})
	if err != nil {
		c.error("spec.template", "", "%v", err)
		return
	}
	p.fixed = fixed
}

// parts are all trees of the profile, in a fixed order.
func (p *profile) parts() []*template.Tree {
	var all []*template.Tree
	for l := range lists {
		for i := range p.elements[l] {
			all = append(all, p.elements[l][i].tree)
		}
	}
	for _, t := range [...]*template.Tree{p.metadata, p.spec} {
		if t != nil {
			all = append(all, t)
		}
	}
	for i := range p.app {
		all = append(all, p.app[i].tree)
	}
	return all
}

// assemble puts together what a function renders, in the form in which the API
// server writes it.
func (p *profile) assemble(render func(*template.Tree) ([]byte, error)) (*rendered, error) {
	r := new(rendered)
	sum := sha256.New()
	written := func(t *template.Tree, as reflect.Type) ([]byte, error) {
		raw, err := render(t)
		if err != nil {
			return nil, err
		}
		return asWritten(raw, as), nil
	}
	for l := range lists {
		for i := range p.elements[l] {
			e := &p.elements[l][i]
			raw, err := written(e.tree, shapeOf(l))
			if err != nil {
				return nil, err
			}
			made := part{raw: raw, value: json.RawMessage(raw)}
			if l == volumes {
				if made.volume, err = readVolume(raw); err != nil {
					return nil, fmt.Errorf("volume %q: %w", e.name, err)
				}
			} else if made.ports, err = readPorts(raw, e.name); err != nil {
				return nil, fmt.Errorf("container %q: %w", e.name, err)
			}
			r.ports = r.ports || e.runs(l) && len(made.ports) > 0
			r.elements[l] = append(r.elements[l], made)
			digest(sum, raw)
		}
		r.arrays[l] = array(r.elements[l])
		digest(sum, nil)
	}
	for _, field := range []struct {
		tree *template.Tree
		as   reflect.Type
		into *rawjson.Value
	}{{p.metadata, reflect.TypeFor[v1alpha1.SidecarTemplateMetadata](), &r.metadata}, {p.spec, reflect.TypeFor[corev1.PodSpec](), &r.spec}} {
		if field.tree == nil {
			continue
		}
		raw, err := written(field.tree, field.as)
		if err != nil {
			return nil, err
		}
		*field.into = raw
		digest(sum, raw)
	}
	for i := range p.app {
		raw, err := written(p.app[i].tree, reflect.TypeFor[corev1.Container]())
		if err != nil {
			return nil, err
		}
		r.app = append(r.app, raw)
		digest(sum, raw)
	}
	const digits = 12 // 48 bits: enough to tell the revisions of one profile apart
	r.revision = hex.EncodeToString(sum.Sum(nil))[:digits]
	return r, nil
}

func digest(sum hash.Hash, raw []byte) {
	_, _ = sum.Write(raw) // never fails
	_, _ = sum.Write([]byte{0})
}

// array writes elements as a JSON array.
func array(parts []part) json.RawMessage {
	dst := []byte{'['}
	for i := range parts {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, parts[i].raw...)
	}
	return append(dst, ']')
}

// shapeOf is the type of a list's elements.
func shapeOf(l list) reflect.Type {
	if l == volumes {
		return reflect.TypeFor[corev1.Volume]()
	}
	return reflect.TypeFor[corev1.Container]()
}
