package sidecar

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"

	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checker checks what a template says about one pod against the rules of the API
// server, as far as they do not depend on the pod.
type checker struct {
	// report takes each diagnostic.
	report func(severity diagnostic.Severity, path, hint, message string)
	// placeholders are those of the template's spec and of the additions.
	placeholders placeholders
	// grace is the terminationGracePeriodSeconds of the template, or nil.
	grace *int64
	// volumes and containers have the paths of the template's elements by name.
	volumes, containers map[string]string
	// blocks has the names of the template's volumes, and whether each can be a block
	// device, and claims those of its resourceClaims.
	blocks, claims map[string]bool
	// ports are those of the containers that run at the same time.
	ports takenPorts
}

func newChecker(placeholders placeholders, report func(severity diagnostic.Severity, path, hint, message string)) *checker {
	return &checker{
		report: report, placeholders: placeholders,
		volumes: make(map[string]string), containers: make(map[string]string), blocks: make(map[string]bool), claims: make(map[string]bool),
	}
}

func (c *checker) error(path, hint, format string, args ...any) {
	c.report(diagnostic.Error, path, hint, fmt.Sprintf(format, args...))
}

func (c *checker) warn(path, hint, format string, args ...any) {
	c.report(diagnostic.Warning, path, hint, fmt.Sprintf(format, args...))
}

// allow checks a word. Nothing stands for the default.
func allow[T ~string](c *checker, path string, word T, allowed ...T) {
	if word == "" || slices.Contains(allowed, word) {
		return
	}
	quoted := make([]string, len(allowed))
	plain := make([]string, len(allowed))
	for i, a := range allowed {
		quoted[i], plain[i] = strconv.Quote(string(a)), string(a)
	}
	last := len(quoted) - 1
	c.error(path, diagnostic.DidYouMean(string(word), plain...), "%q is not known: allowed are %s and %s", word, strings.Join(quoted[:last], ", "), quoted[last])
}

func (c *checker) selector(path string, s *metav1.LabelSelector) {
	errs := metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, field.NewPath(path))
	// Upstream walks a map.
	slices.SortStableFunc(errs, func(a, b *field.Error) int {
		return cmp.Or(cmp.Compare(a.Field, b.Field), cmp.Compare(a.ErrorBody(), b.ErrorBody()))
	})
	for _, err := range errs {
		body := err.ErrorBody()
		if strings.HasSuffix(err.Field, ".operator") {
			body += ": allowed are In, NotIn, Exists and DoesNotExist"
		}
		c.error(err.Field, "", "%s", strings.ToLower(body[:1])+body[1:])
	}
}

// name checks the name of a container or volume and notes it in taken, where
// the path of the first that has it stands.
func (c *checker) name(path, name string, taken map[string]string) {
	if name == "" {
		c.error(path, "", "a name is required")
		return
	}
	for _, message := range validation.IsDNS1123Label(name) {
		c.error(path, "", "%q: %s", name, message)
	}
	if first, dup := taken[name]; dup {
		c.error(path, "", "%q is the name of %s too", name, first)
		return
	}
	taken[name] = strings.TrimSuffix(path, ".name")
}

// broken reports a value that no pod may have. One that a placeholder gives is
// not known before there is a pod, and is not judged by what stands for it here.
func (c *checker) broken(path, format string, args ...any) {
	if !c.placeholder(path) {
		c.error(path, "", format, args...)
	}
}

// placeholders are the places of a JSON value with a placeholder, by the names of
// members and the indexes of elements on the way there. What is empty and not nil is
// such a place itself.
type placeholders map[string]placeholders

func placeholdersIn(v rawjson.Value) placeholders {
	var out placeholders
	note := func(token string, below placeholders) {
		if below == nil {
			return
		}
		if out == nil {
			out = make(placeholders)
		}
		out[token] = below
	}
	if strings.Contains(strings.ReplaceAll(v.Text(), "$${", ""), "${") {
		return placeholders{}
	}
	for name, value := range v.Members() {
		note(name.Text(), placeholdersIn(value))
	}
	for i, element := range v.Elements() {
		note(indexed("", i), placeholdersIn(element))
	}
	return out
}

// placeholder reports whether the profile has a placeholder at the path of a field.
func (c *checker) placeholder(path string) bool {
	at := c.placeholders
	for token := range strings.SplitSeq(strings.ReplaceAll(path, "[", ".["), ".") {
		at = at[token]
	}
	return at != nil && len(at) == 0
}

// needs reports a text that is missing. It returns false if it is.
func (c *checker) needs(path, text string) bool {
	if text == "" {
		c.error(path, "", "a value is required")
	}
	return text != ""
}

// messages reports what is wrong with a text, in the words of the API server's
// library.
func (c *checker) messages(path, text string, messages []string) {
	for _, message := range messages {
		c.broken(path, "%q: %s", text, message)
	}
}

// oneOfWords checks a word. Nothing stands for the default.
func oneOfWords[T ~string](c *checker, path string, word T, allowed ...T) {
	if !c.placeholder(path) {
		allow(c, path, word, allowed...)
	}
}

func indexed(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }
