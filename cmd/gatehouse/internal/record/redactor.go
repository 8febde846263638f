package record

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record/redacted"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// DefaultPaths returns the field paths that are redacted in every recording.
func DefaultPaths() []string {
	return []string{
		"data", "stringData", "binaryData",
		"spec.containers[*].env[*].value", "spec.initContainers[*].env[*].value", "spec.ephemeralContainers[*].env[*].value",
		"spec.extra", // of the user in a SubjectAccessReview or a CertificateSigningRequest
	}
}

// DefaultAnnotations returns the patterns of the annotations that are redacted in every
// recording. The first ones hold a copy of the object, written by kubectl, kopf, kapp and Rancher.
func DefaultAnnotations() []string {
	return []string{
		"*last-applied*", "*last-handled*", "kapp.k14s.io/*", "objectset.rio.cattle.io/*",
		"*token*", "*secret*", "*password*", "*credential*", "*apikey*", "*api-key*",
	}
}

// MinKey is the smallest size of a redaction key, in bytes.
const MinKey = 32

// ReadKey returns the redaction key in a file, which is in base64, and a random one without a file.
// Errors name the file, and say nothing of its bytes.
func ReadKey(file string) ([]byte, error) {
	if file == "" {
		key := make([]byte, MinKey)
		_, _ = rand.Read(key) // it does not fail
		return key, nil
	}
	text, err := os.ReadFile(file) // #nosec G304 -- the user names the file
	if err != nil {
		return nil, fmt.Errorf("%q: cannot be read: %w", file, errors.Unwrap(err)) // err names the file too
	}
	key, err := base64.StdEncoding.DecodeString(string(bytes.TrimSpace(text)))
	if err != nil || len(key) < MinKey {
		return nil, fmt.Errorf("%q: must hold at least %d bytes in base64 (hint: gatehouse record key --out FILE makes one)", file, MinKey)
	}
	return key, nil
}

// Redactor replaces values by keyed hashes. Equal values have equal hashes in all reviews, so that a part that is
// recorded again, as in a rollout, is written once. Whoever reads hashes and can have reviews recorded can therefore test guesses,
// without the key, too. It is for one goroutine.
type Redactor struct {
	redaction Redaction
	prefix    string
	mac       hash.Hash
	// object is the root of objects, secret that of Secrets, and user that of userInfo.
	object, secret, user *pathNode
	patterns             []*regexp.Regexp
	cache                *partCache
	sum                  [sha256.Size]byte
	// space is how many bytes of hashes the text that is redacted now may still get. It is counted if
	// bounded is true.
	space   int
	bounded bool
}

// pathNode is a place in objects.
type pathNode struct {
	members map[string]*pathNode
	// each is the place of the elements of a list, nil if nothing is redacted in them.
	each *pathNode
	// all is true if everything below is redacted, and annotations if it is a map of annotations.
	all, annotations bool
	// one is true if one hash stands for everything below.
	one bool
}

// find returns the place of a member, nil if nothing is redacted in it.
func (n *pathNode) find(name rawjson.Value) *pathNode {
	if n == nil || n.members == nil {
		return nil
	}
	plain := name[1 : len(name)-1]
	if bytes.IndexByte(plain, '\\') >= 0 {
		return n.members[name.Text()]
	}
	return n.members[string(plain)]
}

// everything is a place at which all is redacted.
//
//nolint:gochecknoglobals // constant
var everything = &pathNode{all: true}

// asOne is a place at which one hash stands for all.
//
//nolint:gochecknoglobals // constant
var asOne = &pathNode{one: true}

// below is find for an object of which all or an annotation may be redacted.
func (n *pathNode) below(name rawjson.Value, r *Redactor) *pathNode {
	switch {
	case n == nil:
		return nil
	case n.all || n.annotations && r.hidesAnnotation(name.Text()):
		return everything
	default:
		return n.find(name)
	}
}

func (n *pathNode) member(name string) *pathNode {
	if n.members == nil {
		n.members = map[string]*pathNode{}
	}
	if n.members[name] == nil {
		n.members[name] = new(pathNode)
	}
	return n.members[name]
}

// descend returns the place at the end of steps, of which "[*]" is every element of a list.
func (n *pathNode) descend(steps ...string) *pathNode {
	for _, step := range steps {
		if step != "[*]" {
			n = n.member(step)
			continue
		}
		if n.each == nil {
			n.each = new(pathNode)
		}
		n = n.each
	}
	return n
}

// templates returns the paths at which pods are in objects: the object itself, and pod templates.
func templates() [][]string {
	return [][]string{nil, {"template"}, {"spec", "template"}, {"spec", "jobTemplate", "spec", "template"}}
}

// NewRedactor returns a Redactor for the default paths and annotations and those of the caller. Paths
// are as in Redaction; patterns have * for any characters and ignore case. The error names
// every path that cannot be used: labels, names and the like cannot be redacted, because selectors
// read them.
func NewRedactor(key []byte, paths, annotations []string) (*Redactor, error) {
	if len(key) < MinKey {
		return nil, fmt.Errorf("the redaction key has %d bytes, and needs %d", len(key), MinKey)
	}
	id := sha256.Sum256(append([]byte("gatehouse redaction key id:"), key...))
	r := &Redactor{mac: hmac.New(sha256.New, key), object: new(pathNode), user: new(pathNode), cache: newPartCache()}
	r.user.member("extra").all = true
	r.redaction = Redaction{
		Key: hex.EncodeToString(id[:4]), Paths: appendNew(DefaultPaths(), paths), Annotations: appendNew(DefaultAnnotations(), annotations),
	}
	r.prefix = redacted.Prefix + r.redaction.Key + ":"
	var problems []error
	for _, path := range r.redaction.Paths {
		if err := r.addPath(path); err != nil {
			problems = append(problems, err)
		}
	}
	for _, at := range append(templates(), []string{"spec", "jobTemplate"}, []string{"spec", "volumeClaimTemplates", "[*]"}) {
		r.object.descend(at...).descend("metadata", "annotations").annotations = true
	}
	r.secret = &pathNode{members: maps.Clone(r.object.members)}
	r.secret.members["metadata"] = &pathNode{members: map[string]*pathNode{"annotations": everything}}
	for _, pattern := range r.redaction.Annotations {
		r.patterns = append(r.patterns, regexp.MustCompile("(?is)^"+strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*")+"$"))
	}
	return r, errors.Join(problems...)
}

func appendNew(list, more []string) []string {
	for _, one := range more {
		if !slices.Contains(list, one) {
			list = append(list, one)
		}
	}
	return list
}

// addPath adds a path for objects and, if it is in a pod's spec, for pod templates.
func (r *Redactor) addPath(path string) error {
	var steps []string
	for part := range strings.SplitSeq(path, ".") {
		name, list := strings.CutSuffix(part, "[*]")
		if name == "" || strings.ContainsAny(name, "[]* ") {
			return fmt.Errorf("path %q: must be names of fields, as in spec.containers[*].env[*].value", path)
		}
		if steps = append(steps, name); list {
			steps = append(steps, "[*]")
		}
	}
	if first := steps[0]; first == "metadata" || first == "apiVersion" || first == "kind" {
		return fmt.Errorf("path %q: %s cannot be redacted, because selectors and exceptions read it (hint: annotations have a list of their own)", path, first)
	}
	for _, at := range templates() {
		if at != nil && steps[0] != "spec" {
			continue
		}
		r.object.descend(at...).descend(steps...).all = true
	}
	return nil
}

// Redaction returns what is redacted.
func (r *Redactor) Redaction() Redaction { return r.redaction }

const (
	// hashSize is the size of a hash in JSON, in bytes.
	hashSize = len(redacted.Prefix) + 8 + len(":") + 22 + len(`""`)
	// Hashes may have maxGrowth bytes for each byte of the text that they are in, and those of a short
	// text growthSpace: this is more than maps of strings and environment variables can need, but
	// lists of small numbers need 26. maxHashes bounds those of the largest texts.
	maxGrowth, growthSpace, maxHashes = 8, 64 << 10, 16 << 20
)

// limit sets the bound of the hashes in a text that is redacted from now on.
func (r *Redactor) limit(text []byte) {
	r.space = min(maxGrowth*len(text)+growthSpace, maxHashes)
	// Values are between commas: most texts have too few for more than the bound.
	r.bounded = (bytes.Count(text, []byte{','})+1)*hashSize > r.space
}

// bound returns the place for a member of an object or request: asOne if hashes in it would exceed
// the bound of the text.
func (r *Redactor) bound(v rawjson.Value, at *pathNode) *pathNode {
	if !r.bounded || at == nil {
		return at
	}
	size := r.hashes(v, at) * hashSize
	if size > r.space {
		return asOne
	}
	r.space -= size
	return at
}

// hashes returns how many hashes a value at a place gets.
func (r *Redactor) hashes(v rawjson.Value, at *pathNode) (n int) {
	if at == nil {
		return 0
	}
	switch v.Kind() {
	case rawjson.Object:
		for name, member := range v.Members() {
			n += r.hashes(member, at.below(name, r))
		}
	case rawjson.Array:
		each := at.each
		if at.all {
			each = at
		}
		for _, element := range v.Elements() {
			n += r.hashes(element, each)
		}
	default:
		if at.all {
			n = 1
		}
	}
	return n
}

// root returns the place of an object, which may be followed by other text.
func (r *Redactor) root(object rawjson.Value) *pathNode {
	if object.Get("kind").Is("Secret") {
		return r.secret
	}
	return r.object
}

// appendObject appends a redacted object.
func (r *Redactor) appendObject(dst []byte, object rawjson.Value) []byte {
	r.limit(object)
	root, found := r.root(object), new(values)
	return appendMembers(dst, object, func(dst []byte, name, v rawjson.Value) []byte {
		return r.appendValue(dst, v, r.bound(v, root.find(name)), found)
	})
}

// Object returns an object, as JSON, in which values are redacted.
func (r *Redactor) Object(object []byte) []byte { return r.appendObject(nil, object) }

// appendAnnotations appends an object of which the annotations are redacted alone.
func (r *Redactor) appendAnnotations(dst []byte, object rawjson.Value) []byte {
	return appendMembers(dst, object, func(dst []byte, name, v rawjson.Value) []byte {
		if !name.Is("metadata") {
			return append(dst, v...)
		}
		return r.appendValue(dst, v, r.object.members["metadata"], new(values))
	})
}

// appendMembers appends an object whose values are appended by a function. Anything else is
// appended as it is.
func appendMembers(dst []byte, v rawjson.Value, value func(dst []byte, name, v rawjson.Value) []byte) []byte {
	if v.Kind() != rawjson.Object {
		return append(dst, v...)
	}
	dst = append(dst, '{')
	begin := len(dst)
	for name, member := range v.Members() {
		if len(dst) > begin {
			dst = append(dst, ',')
		}
		dst = append(append(dst, name...), ':')
		dst = value(dst, name, member)
	}
	return append(dst, '}')
}

// appendElements appends a list whose elements are appended by a function.
func appendElements(dst []byte, v rawjson.Value, value func(dst []byte, v rawjson.Value) []byte) []byte {
	dst = append(dst, '[')
	for i, element := range v.Elements() {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = value(dst, element)
	}
	return append(dst, ']')
}

// appendValue appends a value at a place, nil for one at which nothing is redacted.
func (r *Redactor) appendValue(dst []byte, v rawjson.Value, at *pathNode, found *values) []byte {
	switch {
	case at == nil:
		return append(dst, v...)
	case at.all:
		return r.appendAll(dst, v, found)
	case at.one:
		found.any, found.many = true, true
		return append(append(append(dst, '"'), r.hash(string(v))...), '"')
	}
	switch v.Kind() {
	case rawjson.Object:
		if at.members["value"] != nil && at.members["value"].all {
			found.noteEnv(v)
		}
		return appendMembers(dst, v, func(dst []byte, name, v rawjson.Value) []byte {
			return r.appendValue(dst, v, at.below(name, r), found)
		})
	case rawjson.Array:
		if at.each == nil {
			return append(dst, v...)
		}
		return appendElements(dst, v, func(dst []byte, v rawjson.Value) []byte { return r.appendValue(dst, v, at.each, found) })
	default:
		return append(dst, v...)
	}
}

func (r *Redactor) hidesAnnotation(key string) bool {
	return slices.ContainsFunc(r.patterns, func(p *regexp.Regexp) bool { return p.MatchString(key) })
}

// appendAll appends a value in which every string and number is redacted. Empty strings are kept:
// whether there is a value may be known.
func (r *Redactor) appendAll(dst []byte, v rawjson.Value, found *values) []byte {
	switch v.Kind() {
	case rawjson.Object:
		return appendMembers(dst, v, func(dst []byte, _, v rawjson.Value) []byte { return r.appendAll(dst, v, found) })
	case rawjson.Array:
		return appendElements(dst, v, func(dst []byte, v rawjson.Value) []byte { return r.appendAll(dst, v, found) })
	case rawjson.String:
		text := v.Text()
		if text == "" {
			return append(dst, v...)
		}
		found.note(text)
		return append(append(append(dst, '"'), r.hash(text)...), '"')
	case rawjson.Number, rawjson.Bool:
		found.any = true
		return append(append(append(dst, '"'), r.hash(string(v))...), '"')
	default:
		return append(dst, v...)
	}
}

// hash returns the string that stands for a value.
func (r *Redactor) hash(text string) string {
	const size = 16 // bytes
	r.mac.Reset()
	_, _ = r.mac.Write([]byte(text)) // a hash does not fail
	return r.prefix + base64.RawURLEncoding.EncodeToString(r.mac.Sum(r.sum[:0])[:size])
}
