package record

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// pass redacts one review in one pass over its text.
type pass struct {
	*Redactor

	text   rawjson.Value
	cursor rawjson.Cursor
	// dst has the redacted text up to the place copied of text.
	dst    []byte
	copied int
	found  *values
	// secret is true if the request is about a Secret, and credential if its objects hold tokens.
	secret, credential bool
}

// appendRequest appends a redacted AdmissionReview. It returns errCredential for a request that must not be recorded.
func (r *Redactor) appendRequest(dst, body []byte, found *values) ([]byte, error) {
	// A line of a segment has one end. API servers end bodies with one.
	if body = bytes.TrimSpace(body); bytes.IndexByte(body, '\n') >= 0 {
		var compact bytes.Buffer
		if json.Compact(&compact, body) == nil {
			body = compact.Bytes()
		}
	}
	p := pass{Redactor: r, text: body, cursor: rawjson.Value(body).Cursor(), dst: dst, found: found}
	c := &p.cursor
	if c.Kind() != rawjson.Object {
		return append(dst, "null"...), nil
	}
	r.limit(body)
	for c.Enter(); c.Next(); {
		if c.Name().Is("request") && c.Kind() == rawjson.Object {
			p.request()
		} else {
			c.Skip()
		}
	}
	if p.credential {
		return dst, errCredential
	}
	return append(p.dst, body[p.copied:]...), nil
}

// isCredential reports whether requests for a resource hold tokens in their objects. They are never
// recorded.
func isCredential(group, resource, subresource string) bool {
	return group == "authentication.k8s.io" || resource == "serviceaccounts" && subresource == "token"
}

// errCredential is the error for a request that holds a token.
var errCredential = errors.New("the request holds a token")

func (p *pass) request() {
	c := &p.cursor
	var resource, subresource rawjson.Value
	for c.Enter(); c.Next(); {
		switch name := c.Name(); {
		case (name.Is("object") || name.Is("oldObject")) && c.Kind() == rawjson.Object:
			p.members()
		case name.Is("userInfo"):
			p.value(p.bound(p.next(), p.user))
		case name.Is("kind"):
			kind := c.Skip()
			p.secret = p.secret || kind.Get("kind").Is("Secret")
			p.credential = p.credential || isCredential(kind.Get("group").Text(), "", "")
		case name.Is("resource"):
			resource = c.Skip()
		case name.Is("subResource"):
			subresource = c.Skip()
		default:
			c.Skip()
		}
	}
	p.credential = p.credential || isCredential(resource.Get("group").Text(), resource.Get("resource").Text(), subresource.Text())
}

// next returns the value that comes next if it may be too large, without passing by it.
func (p *pass) next() rawjson.Value {
	if !p.bounded {
		return nil
	}
	ahead := p.cursor
	return ahead.Skip()
}

// members redacts the object that comes next. What is not redacted in it is copied as it came.
func (p *pass) members() {
	c := &p.cursor
	root := p.root(p.text[c.At():])
	if p.secret {
		root = p.Redactor.secret
	}
	for c.Enter(); c.Next(); {
		outer := c.Name()
		at := p.bound(p.next(), root.find(outer))
		if c.Kind() != rawjson.Object || at == asOne {
			p.value(at)
			continue
		}
		for c.Enter(); c.Next(); {
			p.value(at.below(c.Name(), p.Redactor))
		}
	}
}

// value redacts the value that comes next, which is at a place.
func (p *pass) value(at *pathNode) {
	start := p.cursor.At()
	raw := p.cursor.Skip()
	if at == nil {
		return
	}
	p.dst = append(p.dst, p.text[p.copied:start]...)
	p.copied = p.cursor.At()
	p.dst = p.appendValue(p.dst, raw, at, p.found)
}
