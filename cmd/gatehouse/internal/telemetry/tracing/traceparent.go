package tracing

import (
	"encoding/hex"
	"strings"
)

// parent is the span of a caller.
type parent struct {
	trace   [16]byte
	span    [8]byte
	sampled bool
}

const (
	// headerLength is that of a traceparent of version 00: 00-TRACE-SPAN-FLAGS.
	headerLength = 2 + 1 + 32 + 1 + 16 + 1 + 2
	// sampledFlag is the flag by which a caller says that its span is recorded.
	sampledFlag = 1
)

// parseTraceParent reads a header traceparent as W3C Trace Context, level 1, says:
// versions that are not known yet begin like version 00, and a header that breaks
// the rules counts as none.
func parseTraceParent(header string) (parent, bool) {
	if len(header) < headerLength || header != strings.ToLower(header) {
		return parent{}, false
	}
	known, rest := header[:headerLength], header[headerLength:]
	if known[2] != '-' || known[35] != '-' || known[52] != '-' {
		return parent{}, false
	}
	var (
		p              parent
		version, flags [1]byte
	)
	for _, part := range []struct {
		to   []byte
		from string
	}{{version[:], known[:2]}, {p.trace[:], known[3:35]}, {p.span[:], known[36:52]}, {flags[:], known[53:]}} {
		if _, err := hex.Decode(part.to, []byte(part.from)); err != nil {
			return parent{}, false
		}
	}
	switch {
	case version[0] == 0xff, p.trace == [16]byte{}, p.span == [8]byte{}:
		return parent{}, false
	case rest != "" && (version[0] == 0 || rest[0] != '-'):
		return parent{}, false
	}
	p.sampled = flags[0]&sampledFlag != 0
	return p, true
}
