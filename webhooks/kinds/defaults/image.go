package defaults

import (
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// pullPolicy returns the default pull policy of an image: Always if its tag is latest or it has neither tag nor digest.
func pullPolicy(image string) corev1.PullPolicy {
	if tag, digest, ok := imageVersion(image); ok && (tag == "latest" || tag == "" && digest == "") {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

// The grammar of references, as in the package documentation of
// github.com/distribution/reference.
const (
	host      = `(?:(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])(?:\.(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9]))*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?`
	component = `[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*`
	tagged    = `(?::([\w][\w.-]{0,127}))?`
	digested  = `(?:@(sha256:[a-f0-9]{64}|sha384:[a-f0-9]{96}|sha512:[a-f0-9]{128}))?`
)

var (
	reference  = regexp.MustCompile(`^(?:` + host + `/)?(` + component + `(?:/` + component + `)*)` + tagged + digested + `$`)
	identifier = regexp.MustCompile(`^[a-f0-9]{64}$`)
)

// imageVersion returns the tag and the digest of a reference, and false for an invalid one.
func imageVersion(image string) (tag, digest string, ok bool) {
	const longest = 255 // of a path in a registry
	if identifier.MatchString(image) {
		return "", "", false
	}
	// What is before the first slash is a registry only if it looks like one.
	if first, _, found := strings.Cut(image, "/"); !found || first != "localhost" && !strings.ContainsAny(first, ".:") && strings.ToLower(first) == first {
		if !found {
			image = "library/" + image
		}
		image = "docker.io/" + image
	}
	parts := reference.FindStringSubmatch(image)
	if parts == nil || len(parts[1]) > longest {
		return "", "", false
	}
	return parts[2], parts[3], true
}
