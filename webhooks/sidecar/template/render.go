package template

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

type nodeKind byte

const (
	literalNode nodeKind = iota
	absentNode
	textNode
	listNode
	objectNode
)

// node is a value of a tree.
type node struct {
	kind nodeKind
	// literal is the JSON of a literalNode.
	literal []byte
	// children are those of a list or an object.
	children []child

	// The rest is that of a textNode.
	path  string
	parts []piece
	place place
	// trusted is true if every result of the expression fits the place.
	trusted bool
}

// child is an element, or a member with its name and colon.
type child struct {
	node

	key []byte
}

// piece is a part of a text: a literal, or an expression.
type piece struct {
	literal    string
	expression *expression
}

// folded makes neighbouring children that are the same for every pod one piece of
// JSON, and the whole a literal if all are.
func (n node) folded(begin, end byte) node {
	children := make([]child, 0, len(n.children))
	for _, c := range n.children {
		if c.kind == absentNode {
			continue
		}
		if last := len(children) - 1; c.kind == literalNode {
			if last >= 0 && children[last].kind == literalNode {
				children[last].literal = c.appendLiteral(append(children[last].literal, ','))
				continue
			}
			c = child{node: node{kind: literalNode, literal: c.appendLiteral(nil)}}
		}
		children = append(children, c)
	}
	n.children = children
	switch {
	case len(children) == 0:
		return node{kind: literalNode, literal: []byte{begin, end}}
	case len(children) == 1 && children[0].kind == literalNode:
		literal := append([]byte{begin}, children[0].literal...)
		return node{kind: literalNode, literal: append(literal, end)}
	default:
		return n
	}
}

func (c *child) appendLiteral(dst []byte) []byte { return append(append(dst, c.key...), c.literal...) }

// Append appends the JSON of the tree for the input to dst. A whole value that is
// left out is null. The error is made of EvaluationErrors, one for each place, in
// the order of the template: all that there are, but not more than some; or it is
// ErrCouldNotTell, if nothing else is known to be wrong.
func (t *Tree) Append(dst []byte, in *Input) ([]byte, error) {
	if t.constant {
		return append(dst, t.root.literal...), nil
	}
	if in.Params.scope != nil && in.Params.scope != t.scope {
		return dst, fmt.Errorf("%w: the parameters are those of profile %q, and not of %q", ErrCouldNotTell, in.Params.scope.profile, t.scope.profile)
	}
	r := rendering{in: in}
	out, present := t.root.append(dst, &r)
	if err := r.err(); err != nil {
		return dst, err
	}
	if !present {
		out = append(out, "null"...)
	}
	return out, nil
}

// maxFailures is how many EvaluationErrors a rendering comes to before it is
// given up: more than a person mends in one go, and little to send.
const maxFailures = 5

// rendering is one rendering of a tree, or a part of one. After a failure, what
// is rendered is of no use, and what follows is only looked at for more.
type rendering struct {
	in     *Input
	failed []*EvaluationError
	// unknown is the first error that is no EvaluationError.
	unknown error
}

// fail notes an error, and of two that are alike the first.
func (r *rendering) fail(err error) {
	failed, ok := errors.AsType[*EvaluationError](err)
	switch {
	case !ok && r.unknown == nil:
		r.unknown = err
	case ok && !slices.ContainsFunc(r.failed, func(other *EvaluationError) bool { return *other == *failed }):
		r.failed = append(r.failed, failed)
	}
}

// over reports whether the rendering is given up.
func (r *rendering) over() bool { return len(r.failed) >= maxFailures }

// err returns what failed. An expression without a result for this pod is certain,
// whatever could not be told about others.
func (r *rendering) err() error {
	switch len(r.failed) {
	case 0:
		return r.unknown
	case 1:
		return r.failed[0]
	}
	all := make([]error, len(r.failed))
	for i, failed := range r.failed {
		all[i] = failed
	}
	return errors.Join(all...)
}

// append appends the JSON of the value. Not present is a value to be left out,
// for which nothing is appended.
func (n *node) append(dst []byte, r *rendering) (out []byte, present bool) {
	switch n.kind {
	case literalNode:
		return append(dst, n.literal...), true
	case absentNode:
		return dst, false
	case textNode:
		return n.appendText(dst, r)
	case listNode:
		return n.appendChildren(dst, r, '[', ']')
	case objectNode:
		return n.appendChildren(dst, r, '{', '}')
	default:
		return dst, false
	}
}

func (n *node) appendChildren(dst []byte, r *rendering, begin, end byte) (out []byte, present bool) {
	dst = append(dst, begin)
	first := true
	for i := range n.children {
		if r.over() {
			break
		}
		c := &n.children[i]
		before := len(dst)
		if !first {
			dst = append(dst, ',')
		}
		out, present := c.append(append(dst, c.key...), r)
		if !present {
			dst = out[:before]
			continue
		}
		dst, first = out, false
	}
	return append(dst, end), true
}

func (n *node) appendText(dst []byte, r *rendering) (out []byte, present bool) {
	s, ok := n.result(r)
	if !ok || s.kind == nothing {
		return dst, false
	}
	if !n.trusted && !n.place.takes(s) {
		for _, p := range n.parts {
			if p.expression != nil {
				r.fail(p.expression.failed(n.path, "gives "+s.quoted()+", expected "+n.place.wants()))
				return dst, false
			}
		}
	}
	return s.appendJSON(dst), true
}

// result returns what a text results in. False is about a failure, which is noted.
func (n *node) result(r *rendering) (scalar, bool) {
	if len(n.parts) == 1 {
		s, err := n.parts[0].expression.eval(n.path, r.in)
		if err != nil {
			r.fail(err)
		}
		return s, err == nil
	}
	// Most texts are short.
	var room [256]byte
	text, good := room[:0], true
	for _, p := range n.parts {
		if p.expression == nil {
			text = append(text, p.literal...)
			continue
		}
		s, err := p.expression.eval(n.path, r.in)
		if err == nil && s.kind == nothing {
			err = p.expression.failed(n.path, "is null, which cannot be a part of a text")
		}
		if err != nil {
			r.fail(err)
			good = false
			continue
		}
		text = s.appendText(text)
		if len(text) > maxTextLength {
			r.fail(p.expression.failed(n.path, "makes a text of more than "+strconv.Itoa(maxTextLength)+" bytes"))
			return scalar{}, false
		}
	}
	if !good {
		return scalar{}, false
	}
	return textScalar(string(text)), true
}

// isTrusted reports whether what the text results in need not be looked at, because
// its type says that it fits, or its parameter has been held to the same form.
func (n *node) isTrusted() bool {
	switch {
	case n.place.t == nil:
		return true
	case len(n.parts) > 1:
		return n.place.isString()
	}
	e := n.parts[0].expression
	if n.place.isQuantity() {
		return e.program == nil && e.kind == v1alpha1.QuantityParameter
	}
	kind, known, _ := staticKind(e.output)
	return known && (kind == textual && n.place.isString() || kind == boolean && n.place.fits(boolean))
}

// Sample returns the JSON of the tree for checks when a profile is loaded: for a
// plausible pod and namespace, and the defaults of the parameters or plausible
// values. Where an expression has no result for these, a value that fits the
// place stands for it.
func (t *Tree) Sample() []byte {
	in := &Input{
		Pod: rawjson.Value(samplePod), Params: t.scope.sample,
		Namespace: &Namespace{
			Name: "default", Labels: map[string]string{"kubernetes.io/metadata.name": "default"}, Annotations: map[string]string{},
		},
	}
	out, present := t.root.appendSample(nil, in)
	if !present {
		return []byte("null")
	}
	return out
}

// samplePod is a pod such as many are, as the API server has defaulted it.
const samplePod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"app-7c5ddbdf54-x2x9z","generateName":"app-7c5ddbdf54-","namespace":"default",` +
	`"labels":{"app":"app","app.kubernetes.io/name":"app","pod-template-hash":"7c5ddbdf54"},"annotations":{"example.com/sample":"sample"},` +
	`"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"app-7c5ddbdf54","uid":"3f2504e0-4f89-11d3-9a0c-0305e82c3301","controller":true,"blockOwnerDeletion":true}]},` +
	`"spec":{"containers":[{"name":"app","image":"registry.example/app:1.0","ports":[{"name":"http","containerPort":8080,"protocol":"TCP"}],` +
	`"env":[{"name":"SAMPLE","value":"sample"}],"resources":{"limits":{"cpu":"1","memory":"256Mi"},"requests":{"cpu":"100m","memory":"128Mi"}},` +
	`"volumeMounts":[{"name":"data","mountPath":"/data"}],"imagePullPolicy":"IfNotPresent","securityContext":{"runAsUser":1000},` +
	`"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File"}],"volumes":[{"name":"data","emptyDir":{}}],` +
	`"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","serviceAccountName":"default","serviceAccount":"default",` +
	`"securityContext":{"runAsUser":1000},"schedulerName":"default-scheduler","priority":0,"enableServiceLinks":true,"preemptionPolicy":"PreemptLowerPriority"}}`

func (n *node) appendSample(dst []byte, in *Input) (out []byte, present bool) {
	begin, end := byte('['), byte(']')
	switch n.kind { //nolint:exhaustive // the others have children
	case literalNode:
		return append(dst, n.literal...), true
	case absentNode:
		return dst, false
	case textNode:
		s := n.sample(in)
		if s.kind == nothing {
			return dst, false
		}
		return s.appendJSON(dst), true
	case objectNode:
		begin, end = '{', '}'
	}
	dst = append(dst, begin)
	first := true
	for i := range n.children {
		c, before := &n.children[i], len(dst)
		if !first {
			dst = append(dst, ',')
		}
		if dst, present = c.appendSample(append(dst, c.key...), in); !present {
			dst = dst[:before]
			continue
		}
		first = false
	}
	return append(dst, end), true
}

// sample returns what the text results in, or else a value that fits.
func (n *node) sample(in *Input) scalar {
	if s, ok := n.result(&rendering{in: in}); ok && n.place.takes(s) {
		return s
	}
	var candidates []scalar
	if len(n.parts) > 1 {
		for _, own := range []bool{true, false} {
			for _, fallback := range samples(textual) {
				candidates = append(candidates, n.sampleText(in, own, fallback))
			}
		}
	} else if kind, known, _ := staticKind(n.parts[0].expression.output); known {
		candidates = samples(kind)
	}
	// Where none of these fits, whatever does.
	for _, kind := range []scalarKind{textual, integer, boolean, number} {
		candidates = append(candidates, samples(kind)...)
	}
	if i := slices.IndexFunc(candidates, n.place.takes); i >= 0 {
		return candidates[i]
	}
	return scalar{}
}

// sampleText returns a text of several parts, with the fallback where an expression
// has no result or, unless its own may be taken, in the place of any text.
func (n *node) sampleText(in *Input, own bool, fallback scalar) scalar {
	var text []byte
	for _, p := range n.parts {
		if p.expression == nil {
			text = append(text, p.literal...)
			continue
		}
		s, err := p.expression.eval(n.path, in)
		if err != nil || s.kind == nothing {
			s = fallback
			if kind, known, _ := staticKind(p.expression.output); known && kind != textual {
				s = samples(kind)[0]
			}
		} else if !own && s.kind == textual {
			s = fallback
		}
		text = s.appendText(text)
	}
	return textScalar(string(text))
}
