// Package image reads references of container images, such as "nginx" and "registry.example:5000/shop/app:v1", in the form to which Docker
// and containerd complete them, and patterns of such references.
package image

import (
	"cmp"
	"path"
	"regexp"
	"strings"
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

// mostPath is how many bytes the path of a repository may have.
const mostPath = 255

const (
	dockerRegistry = "docker.io"
	legacyRegistry = "index.docker.io"
	officialImages = "library/"
	// deep is the end of a pattern for all that is below.
	deep = "/**"

	hostForm   = `(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])`
	domainForm = `(?:` + hostForm + `(?:\.` + hostForm + `)*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?`
	partForm   = `[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*`
	pathForm   = partForm + `(?:/` + partForm + `)*`
	tagForm    = `[\w][\w.-]{0,127}`
	digestForm = `sha256:[0-9a-f]{64}|sha384:[0-9a-f]{96}|sha512:[0-9a-f]{128}`
)

// These are those of https://pkg.go.dev/github.com/distribution/reference, which Docker and containerd use.
var (
	complete  = regexp.MustCompile(`^(` + domainForm + `/(` + pathForm + `))(?::(` + tagForm + `))?(?:@(` + digestForm + `))?$`)
	named     = regexp.MustCompile(`^` + domainForm + `/(` + pathForm + `)$`)
	tagged    = regexp.MustCompile(`^` + tagForm + `$`)
	digested  = regexp.MustCompile(`^(?:` + digestForm + `)$`)
	onlyImage = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// Parse returns the image that a reference names, as Docker and containerd complete it: without a registry it is on docker.io, where one
// without a slash is below "library". It is false for what they refuse. The registry is not changed: one in other letters is another one.
func Parse(text string) (Reference, bool) {
	if len(text) > mostText || onlyImage.MatchString(text) {
		return Reference{}, false
	}
	parts := complete.FindStringSubmatch(completed(text))
	if parts == nil || len(parts[2]) > mostPath {
		return Reference{}, false
	}
	r := Reference{Name: parts[1], Digest: parts[4]}
	if r.Digest == "" {
		r.Tag = cmp.Or(parts[3], "latest")
	}
	return r, true
}

// completed returns a reference with its registry.
func completed(text string) string {
	first, rest, hasPath := strings.Cut(text, "/")
	switch {
	case !hasPath:
		return dockerRegistry + "/" + officialImages + text
	case first == legacyRegistry, first == dockerRegistry:
		if strings.Contains(rest, "/") {
			return dockerRegistry + "/" + rest
		}
		return dockerRegistry + "/" + officialImages + rest
	case isRegistry(first):
		return text
	default:
		return dockerRegistry + "/" + text
	}
}

// isRegistry reports whether the first part of a reference with several is a registry.
func isRegistry(first string) bool {
	return first == "localhost" || strings.ContainsAny(first, ".:") || strings.ToLower(first) != first
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
// characters but a slash, "/**" at the end of the path for everything below, and "*." at the beginning of the registry for any one name.
func ParsePattern(text string) (Pattern, error) {
	fail := func(problem, hint string) (Pattern, error) { return Pattern{}, &PatternError{problem, hint} }
	if len(text) > mostText {
		return fail("is too long", "")
	}
	rest, digest, pinned := strings.Cut(text, "@")
	if pinned && !digested.MatchString(digest) {
		return fail("has no digest that an image can have", `as in "registry.example/legacy/app@sha256:…", written out and without "*"`)
	}
	tag := ""
	if last := strings.LastIndexByte(rest, '/') + 1; strings.Contains(rest[last:], ":") {
		at := last + strings.IndexByte(rest[last:], ':')
		rest, tag = rest[:at], rest[at+1:]
		switch {
		case pinned:
			return fail("has a tag and a digest", "leave out the tag: the digest decides")
		case !tagged.MatchString(strings.ReplaceAll(tag, "*", "a")):
			return fail("has no tag that an image can have", `as in "registry.example/legacy/app:v1.*"`)
		}
	}
	if first, _, _ := strings.Cut(rest, "/"); strings.Contains(strings.TrimPrefix(first, "*."), "*") && (isRegistry(first) || strings.Trim(first, "*") == "") {
		return fail("leaves the registry open", `write the registry, as in "registry.example/legacy/*"; it may begin with "*." for any one name`)
	}
	p := Pattern{tag: tag, digest: digest}
	if rest, p.deep = strings.CutSuffix(rest, deep); p.deep {
		const below = "/a/a" // "docker.io/**" is more than the images of "library"
		p.name = strings.TrimSuffix(completed(rest+below), below)
	} else {
		p.name = completed(rest)
	}
	if strings.Contains(p.name, "**") {
		return fail(`has a "**" that is not all of its last part`, `as in "registry.example/legacy/**"; a "*" stands for any characters but a slash`)
	}
	sample := strings.ReplaceAll(p.name, "*", "a")
	if p.deep {
		sample += "/a"
	}
	if parts := named.FindStringSubmatch(sample); parts == nil || len(parts[1]) > mostPath || strings.HasPrefix(sample, "[") {
		return fail("can match no image", `a path has lower-case letters, digits, and ".", "_" and "-" between them`)
	}
	return p, nil
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
	return name != "" && matches(p.name, name)
}

// matches is path.Match for a pattern that has none of its special characters but "*".
func matches(pattern, name string) bool {
	matched, err := path.Match(pattern, name)
	return matched && err == nil
}
