package sidecar

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// broken reports a value that no pod may have. One that a placeholder gives is
// not known before there is a pod, and is not judged by what stands for it here.
func (c *compiler) broken(path, format string, args ...any) {
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
func (c *compiler) placeholder(path string) bool {
	at := c.placeholders
	for token := range strings.SplitSeq(strings.ReplaceAll(path, "[", ".["), ".") {
		at = at[token]
	}
	return at != nil && len(at) == 0
}

// needs reports a text that is missing. It returns false if it is.
func (c *compiler) needs(path, text string) bool {
	if text == "" {
		c.error(path, "", "a value is required")
	}
	return text != ""
}

// messages reports what is wrong with a text, in the words of the API server's
// library.
func (c *compiler) messages(path, text string, messages []string) {
	for _, message := range messages {
		c.broken(path, "%q: %s", text, message)
	}
}

// oneOfWords checks a word. Nothing stands for the default.
func oneOfWords[T ~string](c *compiler, path string, word T, allowed ...T) {
	if !c.placeholder(path) {
		allow(c, path, word, allowed...)
	}
}

// atLeast checks a number.
func (c *compiler) atLeast(path string, number, least int64) {
	if number < least {
		c.broken(path, "%q is too low: allowed is %d or more", strconv.FormatInt(number, 10), least)
	}
}

// user checks the number of a user or group.
func (c *compiler) user(path string, id *int64) {
	if id == nil {
		return
	}
	for _, message := range validation.IsValidUserID(*id) {
		c.broken(path, "%q: %s", strconv.FormatInt(*id, 10), message)
	}
}

// portNumber checks the number or name of a port.
func (c *compiler) portNumber(path string, port intstr.IntOrString) {
	if port.Type == intstr.String {
		c.messages(path, port.StrVal, validation.IsValidPortName(port.StrVal))
		return
	}
	c.messages(path, port.String(), validation.IsValidPortNum(port.IntValue()))
}

// address checks an IP address.
func (c *compiler) address(path, text string) {
	if len(validation.IsValidIPForLegacyField(field.NewPath(path), text, false, nil)) > 0 {
		c.broken(path, "%q is not an IP address", text)
	}
}

// inside checks a path that must not leave where it begins.
func (c *compiler) inside(path, text string) {
	if strings.HasPrefix(text, "/") {
		c.broken(path, "%q must be a relative path", text)
	}
	c.noBacksteps(path, text)
}

func (c *compiler) noBacksteps(path, text string) {
	for part := range strings.SplitSeq(text, "/") {
		if part == ".." {
			c.broken(path, `%q must not contain ".."`, text)
			return
		}
	}
}

// mode checks the permission bits of a file.
func (c *compiler) mode(path string, mode *int32) {
	const most = 0o777
	if mode != nil && (*mode < 0 || *mode > most) {
		c.broken(path, "%q is out of range: allowed is 0 to 511, which is 0777 in octal", strconv.Itoa(int(*mode)))
	}
}

var subscripted = regexp.MustCompile(`^(metadata\.(?:labels|annotations))\['(.*)'\]$`)

// podField checks the path of a field of the pod that is handed down to it.
func (c *compiler) podField(path, text string, allowed ...string) {
	if parts := subscripted.FindStringSubmatch(text); parts != nil {
		key := parts[2]
		if parts[1] == "metadata.annotations" {
			key = strings.ToLower(key)
		}
		c.messages(path, key, validation.IsQualifiedName(key))
		return
	}
	if c.needs(path, text) {
		oneOfWords(c, path, text, allowed...)
	}
}

// podResource checks the name of a container's resource that is handed down to
// it.
func (c *compiler) podResource(path, text string) {
	if !c.needs(path, text) || strings.HasPrefix(text, "limits.hugepages-") || strings.HasPrefix(text, "requests.hugepages-") {
		return
	}
	var allowed []string
	for _, which := range [...]string{"limits", "requests"} {
		for _, name := range [...]string{"cpu", "memory", "ephemeral-storage"} {
			allowed = append(allowed, which+"."+name)
		}
	}
	oneOfWords(c, path, text, allowed...)
}

func indexed(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }
