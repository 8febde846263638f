package podcheck

import (
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// atLeast checks a number.
func (c *Checker) atLeast(path string, number, least int64) {
	if number < least {
		c.invalid(path, "%q is too low: allowed is %d or more", strconv.FormatInt(number, 10), least)
	}
}

// user checks the number of a user or group.
func (c *Checker) user(path string, id *int64) {
	if id == nil {
		return
	}
	for _, message := range validation.IsValidUserID(*id) {
		c.invalid(path, "%q: %s", strconv.FormatInt(*id, 10), message)
	}
}

// portNumber checks the number or name of a port.
func (c *Checker) portNumber(path string, port intstr.IntOrString) {
	if port.Type == intstr.String {
		c.messages(path, port.StrVal, validation.IsValidPortName(port.StrVal))
		return
	}
	c.messages(path, port.String(), validation.IsValidPortNum(port.IntValue()))
}

// address checks an IP address.
func (c *Checker) address(path, text string) {
	if len(validation.IsValidIPForLegacyField(field.NewPath(path), text, false, nil)) > 0 {
		c.invalid(path, "%q is not an IP address", text)
	}
}

// relativePath checks a path that must not leave where it begins.
func (c *Checker) relativePath(path, text string) {
	if strings.HasPrefix(text, "/") {
		c.invalid(path, "%q must be a relative path", text)
	}
	c.noParentReferences(path, text)
}

func (c *Checker) noParentReferences(path, text string) {
	for part := range strings.SplitSeq(text, "/") {
		if part == ".." {
			c.invalid(path, `%q must not contain ".."`, text)
			return
		}
	}
}

// mode checks the permission bits of a file.
func (c *Checker) mode(path string, mode *int32) {
	const most = 0o777
	if mode != nil && (*mode < 0 || *mode > most) {
		c.invalid(path, "%q is out of range: allowed is 0 to 511, which is 0777 in octal", strconv.Itoa(int(*mode)))
	}
}

var subscripted = regexp.MustCompile(`^(metadata\.(?:labels|annotations))\['(.*)'\]$`)

// podField checks the path of a field of the pod that is handed down to it.
func (c *Checker) podField(path, text string, allowed ...string) {
	if parts := subscripted.FindStringSubmatch(text); parts != nil {
		key := parts[2]
		if parts[1] == "metadata.annotations" {
			key = strings.ToLower(key)
		}
		c.messages(path, key, validation.IsQualifiedName(key))
		return
	}
	if c.require(path, text) {
		oneOf(c, path, text, allowed...)
	}
}

// podResource checks the name of a container's resource that is handed down to
// it.
func (c *Checker) podResource(path, text string) {
	if !c.require(path, text) || strings.HasPrefix(text, "limits.hugepages-") || strings.HasPrefix(text, "requests.hugepages-") {
		return
	}
	var allowed []string
	for _, which := range [...]string{"limits", "requests"} {
		for _, name := range [...]string{"cpu", "memory", "ephemeral-storage"} {
			allowed = append(allowed, which+"."+name)
		}
	}
	oneOf(c, path, text, allowed...)
}
