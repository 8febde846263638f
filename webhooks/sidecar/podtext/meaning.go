package podtext

import (
	"net/netip"
	"path"
)

// CleanPath returns the one way in which a path of a container or node is written. For the kernel "/logs/" and "/./logs" are the
// directory "/logs"; the API server compares their texts.
func CleanPath(text string) string {
	if text == "" {
		return ""
	}
	return path.Clean(text)
}

// CleanAddress returns the one way in which an IP address is written. What is none stays as it is.
func CleanAddress(text string) string {
	if ip, err := netip.ParseAddr(text); err == nil {
		return ip.Unmap().String()
	}
	return text
}
