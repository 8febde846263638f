package kube

import (
	"encoding/base64"
	"strings"
	"testing"
)

// Hostile or not, what somebody says never brings a key into a log.
func FuzzSaid(f *testing.F) {
	f.Add("secrets \"x\" is forbidden", "LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0tCg==")
	f.Add("\n\x00", strings.Repeat("A", 64))
	f.Fuzz(func(t *testing.T, message, key string) {
		encoded := base64.StdEncoding.EncodeToString([]byte(key))
		got := Sanitize(message + encoded)
		if len(encoded) >= 32 && strings.Contains(got, encoded) {
			t.Errorf("%q holds %q", got, encoded)
		}
		if strings.ContainsAny(got, "\n\r\x1b") {
			t.Errorf("more than a line: %q", got)
		}
	})
}
