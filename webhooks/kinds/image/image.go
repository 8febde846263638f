// Package image reads references of container images, such as "nginx" and "registry.example:5000/shop/app:v1", in the form to which Docker
// and containerd complete them, and patterns of such references.
package image

import (
	_ "crypto/sha256" // digests of images
	_ "crypto/sha512"
	"path"
	"strings"

	"github.com/distribution/reference"
)

// Reference is an image by its parts. The zero value is no image.
type Reference struct {
	// Name is the registry and the path in it: "docker.io/library/nginx".
	Name string
	// Tag is "latest" if the text has neither tag nor digest. It is "" if there is a digest, which alone decides what a node runs: nothing
	// ensures that the tag beside it is one of that image.
	Tag string
	// Digest is as "sha256:…".
	Digest string
}

// mostText is how many bytes of a reference or a pattern are looked at. No reference has more: its name, tag and digest are shorter.
const mostText = 1024

// deep is the end of a pattern for all that is below.
const deep = "/**"

// Parse returns the image that a reference names, as Docker and containerd complete it: without a registry it is on docker.io, where one
// without a slash is below "library". It is false for what they refuse. The registry is not changed: one in other letters is another one.
func Parse(text string) (Reference, bool) {
	named, ok := parse(text)
	if !ok {
		return Reference{}, false
	}
	out := Reference{Name: named.Name()}
	if digested, isDigested := named.(reference.Digested); isDigested {
		out.Digest = digested.Digest().String()
	} else if tagged, isTagged := reference.TagNameOnly(named).(reference.Tagged); isTagged {
		out.Tag = tagged.Tag()
	}
	return out, true
}

func parse(text string) (reference.Named, bool) {
	if len(text) > mostText {
		return nil, false
	}
	named, err := reference.ParseNormalizedNamed(text)
	// The library takes what has a registry that it cannot read for a path.
	return named, err == nil && reference.Domain(named) != ""
}

// Pattern is a pattern of references: a reference in which parts may be left open. Patterns are immutable and safe for concurrent use.
type Pattern struct {
	// name has stars, and deep says that it is the beginning of a name.
	name string
	deep bool
	// tag may have stars. Without tag and digest, all versions match.
	tag, digest string
}

// PatternError says what is wrong with a pattern.
type PatternError struct {
	// Problem follows the pattern in a sentence, and Hint says what to do.
	Problem, Hint string
}

// Error returns the problem.
func (e *PatternError) Error() string { return e.Problem }

// ParsePattern returns the pattern that a text is, and a *PatternError for one that is none.
//
// A pattern is completed like a reference, but without a tag and a digest it matches all versions. A "*" in the path or tag stands for any
// characters but a slash, "/**" at the end of the path for everything below, and "*." at the beginning of the registry for any one name without a dot.
func ParsePattern(text string) (Pattern, error) {
	fail := func(problem, hint string) (Pattern, error) { return Pattern{}, &PatternError{problem, hint} }
	if len(text) > mostText {
		return fail("is too long", "")
	}
	rest, digest, pinned := strings.Cut(text, "@")
	if _, ok := parse("a@" + digest); pinned && (!ok || strings.Contains(digest, "*")) {
		return fail("has no digest that an image can have", `as in "registry.example/legacy/app@sha256:…", written out and without "*"`)
	}
	last := strings.LastIndexByte(rest, '/') + 1
	name, tag, tagged := strings.Cut(rest[last:], ":")
	if _, ok := parse("a:" + sample(tag)); tagged && !ok {
		return fail("has no tag that an image can have", `as in "registry.example/legacy/app:v1.*"`)
	}
	if tagged && pinned {
		return fail("has a tag and a digest", "leave out the tag: the digest decides")
	}
	p := Pattern{tag: tag, digest: digest}
	rest, p.deep = strings.CutSuffix(rest[:last]+name, deep)
	first, _, _ := strings.Cut(rest, "/")
	if below := "/a/a"; p.deep { // "docker.io/**" is more than the images of "library"
		p.name = strings.TrimSuffix(completed(rest+below), below)
	} else {
		p.name = completed(rest)
	}
	registry, _, _ := strings.Cut(p.name, "/")
	switch {
	case first != "" && strings.Trim(first, "*") == "", strings.Contains(strings.TrimPrefix(registry, "*."), "*"):
		return fail("leaves the registry open", `write the registry, as in "registry.example/legacy/*"; it may begin with "*." for any one name`)
	case strings.Contains(rest, "**"):
		return fail(`has a "**" that is not all of its last part`, `as in "registry.example/legacy/**"; a "*" stands for any characters but a slash`)
	case p.name == "", strings.HasPrefix(p.name, "["):
		return fail("can match no image", `a path has lower-case letters, digits, and ".", "_" and "-" between them`)
	}
	return p, nil
}

// sample returns a text that matches a pattern. It is as long.
func sample(pattern string) string { return strings.ReplaceAll(pattern, "*", "a") }

// completed returns the name of a pattern with its registry, "" for one that can be that of no image.
func completed(name string) string {
	named, ok := parse(sample(name))
	if !ok || !reference.IsNameOnly(named) {
		return ""
	}
	whole, given := named.Name(), sample(name)
	same := 0 // the end of both
	for same < min(len(whole), len(given)) && whole[len(whole)-1-same] == given[len(given)-1-same] {
		same++
	}
	return whole[:len(whole)-same] + name[len(name)-same:]
}

// Matches reports whether the pattern matches an image.
func (p *Pattern) Matches(r Reference) bool {
	if p.digest != "" && p.digest != r.Digest || p.tag != "" && (r.Tag == "" || !matches(p.tag, r.Tag)) {
		return false
	}
	name := r.Name
	if p.deep {
		end := 0
		for range strings.Count(p.name, "/") + 1 {
			slash := strings.IndexByte(name[end:], '/')
			if slash < 0 {
				return false
			}
			end += slash + 1
		}
		name = name[:max(end-1, 0)]
	}
	pattern := p.name
	if rest, open := strings.CutPrefix(pattern, "*."); open {
		label, below, _ := strings.Cut(name, ".")
		if strings.Contains(label, "/") { // the dot is none of the registry
			return false
		}
		pattern, name = rest, below
	}
	return name != "" && matches(pattern, name)
}

// matches is path.Match for a pattern that has none of its special characters but "*".
func matches(pattern, name string) bool {
	matched, err := path.Match(pattern, name)
	return matched && err == nil
}
