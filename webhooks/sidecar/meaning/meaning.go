// Package meaning compares what Kubernetes or the kernel compares by meaning, and not by its text.
package meaning

import (
	"net/netip"
	"path"
)

// Path returns the one way in which a path of a container or node is written. For the kernel "/logs/" and "/./logs" are the
// directory "/logs"; the API server compares their texts.
func Path(text string) string {
	if text == "" {
		return ""
	}
	return path.Clean(text)
}

// Address returns the one way in which an IP address is written. What is none stays as it is.
func Address(text string) string {
	if ip, err := netip.ParseAddr(text); err == nil {
		return ip.Unmap().String()
	}
	return text
}
