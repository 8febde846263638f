package template

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

type nodeKind byte

const (
	literalNode nodeKind = iota
	textNode
	listNode
	objectNode
)

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

// fold makes neighbouring children that are the same for every pod one piece of
// JSON, and the whole a literal if all are.
func (n node) fold(begin, end byte) node {
	children := make([]child, 0, len(n.children))
	for _, c := range n.children {
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
// left out is null. The error is the first EvaluationError; or it is ErrCannotDecide, if
// nothing else is known to be wrong.
func (t *Tree) Append(dst []byte, in *Input) ([]byte, error) {
	if t.root.kind == literalNode {
		return append(dst, t.root.literal...), nil
	}
	if in.Params.scope != nil && in.Params.scope != t.scope {
		return dst, fmt.Errorf("%w: the parameters are those of profile %q, and not of %q", ErrCannotDecide, in.Params.scope.profile, t.scope.profile)
	}
	r := rendering{in: in}
	out := t.render(dst, &r)
	if err := cmp.Or(r.failed, r.unknown); err != nil {
		return dst, err
	}
	return out, nil
}

func (t *Tree) render(dst []byte, r *rendering) []byte {
	out, present := t.root.append(dst, r)
	if !present {
		out = append(out, "null"...)
	}
	return out
}

// rendering is one rendering of a tree. After a failure, what is rendered is of no use, and what
// follows is only looked at for an EvaluationError: an expression without a result for this pod is
// certain, whatever could not be decided about others.
type rendering struct {
	in *Input
	// sample says that a value that fits stands for one that cannot be rendered.
	sample bool
	// failed is the first EvaluationError, and unknown the first other error.
	failed, unknown error
}

// fail notes an error.
func (r *rendering) fail(err error) {
	into := &r.unknown
	if _, ok := errors.AsType[*EvaluationError](err); ok {
		into = &r.failed
	}
	if *into == nil {
		*into = err
	}
}

// append appends the JSON of the value. Not present is a value to be left out,
// for which nothing is appended.
func (n *node) append(dst []byte, r *rendering) (out []byte, present bool) {
	switch n.kind {
	case literalNode:
		return append(dst, n.literal...), true
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
		if r.failed != nil {
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
	if r.sample {
		v := n.sample(r.in)
		return appendPresent(dst, v)
	}
	v, ok := n.result(r)
	if !ok {
		return dst, false
	}
	if !n.place.accepts(v) {
		i := slices.IndexFunc(n.parts, func(p piece) bool { return p.expression != nil })
		r.fail(n.parts[i].expression.failed(n.path, "results in "+quote(v)+", expected "+n.place.expected()))
		return dst, false
	}
	return appendPresent(dst, v)
}

func appendPresent(dst []byte, v ref.Val) (out []byte, present bool) {
	if isNull(v) {
		return dst, false
	}
	return appendJSON(dst, v), true
}

// result returns what a text results in. False is about a failure, which is noted.
func (n *node) result(r *rendering) (ref.Val, bool) {
	if len(n.parts) > 1 {
		text, ok := n.text(r)
		return types.String(text), ok
	}
	v, err := n.parts[0].expression.eval(n.path, r.in)
	if err != nil {
		r.fail(err)
	}
	return v, err == nil
}

// text returns what a text of several parts results in. False is about a failure, which is
// noted.
func (n *node) text(r *rendering) (string, bool) {
	// Most texts are short.
	var buffer [256]byte
	text, good := buffer[:0], true
	for _, p := range n.parts {
		if p.expression == nil {
			text = append(text, p.literal...)
			continue
		}
		v, err := p.expression.eval(n.path, r.in)
		if err == nil && isNull(v) {
			err = p.expression.failed(n.path, "is null, which cannot be part of a string")
		}
		if err != nil {
			r.fail(err)
			good = false
			continue
		}
		text = appendText(text, v)
		if len(text) > maxTextLength {
			r.fail(p.expression.failed(n.path, "makes a string of more than "+strconv.Itoa(maxTextLength)+" bytes"))
			return "", false
		}
	}
	if !good {
		return "", false
	}
	return string(text), true
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
	return t.render(nil, &rendering{in: in, sample: true})
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

// sample returns what the text results in, or else the first scalar that fits.
func (n *node) sample(in *Input) ref.Val {
	if v, ok := n.result(&rendering{in: in}); ok && n.place.accepts(v) {
		return v
	}
	for _, kind := range []types.Kind{types.StringKind, types.IntKind, types.BoolKind, types.DoubleKind} {
		for _, v := range samples(kind) {
			if n.place.accepts(v) {
				return v
			}
		}
	}
	return types.NullValue
}
