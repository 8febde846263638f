package review

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"gomodules.xyz/jsonpatch/v2"

	"github.com/gatehouse-dev/gatehouse/internal/truncate"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

const (
	// maxMessageRunes bounds a refusal: a terminal shows no more, and the text
	// is kept in audit logs and events.
	maxMessageRunes = 16 << 10
	// maxAuditValue bounds an audit annotation's value, in runes.
	maxAuditValue = 16 << 10
	// maxAuditKey is the longest name part of a qualified name, which a key
	// becomes behind "<webhook name>/".
	maxAuditKey = 63
)

// appendPatch appends patch and patchType. The patch is base64 of its JSON, which is
// written behind dst for as long as it takes to encode it. With an error dst is returned as it was.
func appendPatch(dst []byte, patches []jsonpatch.Operation) ([]byte, error) {
	patch := append(dst, `,"patch":"`...) //nolint:gocritic // dst is returned as it was with an error
	start := len(patch)
	patch = append(patch, '[')
	for i := range patches {
		op := &patches[i]
		if i > 0 {
			patch = append(patch, ',')
		}
		patch = append(patch, `{"op":`...)
		patch = rawjson.AppendString(patch, op.Operation)
		patch = append(patch, `,"path":`...)
		patch = rawjson.AppendString(patch, op.Path)
		if op.Operation != "remove" {
			patch = append(patch, `,"value":`...)
			switch value := op.Value.(type) {
			case json.RawMessage:
				if len(value) == 0 {
					return dst, fmt.Errorf("patch operation %d (%s %s): no value", i, op.Operation, op.Path)
				}
				patch = append(patch, value...)
			case string:
				patch = rawjson.AppendString(patch, value)
			default:
				text, err := json.Marshal(value)
				if err != nil {
					return dst, fmt.Errorf("patch operation %d (%s %s): %w", i, op.Operation, op.Path, err)
				}
				patch = append(patch, text...)
			}
		}
		patch = append(patch, '}')
	}
	patch = append(patch, ']')
	encoded := base64.StdEncoding.AppendEncode(patch, patch[start:])
	encoded = append(encoded[:start], encoded[len(patch):]...)
	return append(encoded, `","patchType":"JSONPatch"`...), nil
}

func appendAudit(dst []byte, annotations map[string]string) []byte {
	if len(annotations) == 0 {
		return dst
	}
	dst = append(dst, `,"auditAnnotations":{`...)
	for i, key := range sortedKeys(annotations) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = rawjson.AppendString(dst, auditKey(key))
		dst = append(dst, ':')
		dst = rawjson.AppendString(dst, bound(annotations[key], maxAuditValue, true))
	}
	return append(dst, '}')
}

// auditKey makes a key that the API server accepts behind "<webhook name>/",
// and leaves one alone that already is. Different keys stay different.
func auditKey(key string) string {
	ok := key != "" && len(key) <= maxAuditKey
	clean := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '-', r == '_', r == '.':
			return r
		default:
			ok = false
			return '-'
		}
	}, key)
	edges := strings.Trim(clean, "-_.")
	if ok && edges == key {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	const digits = 8
	edges = strings.TrimRight(edges[:min(len(edges), maxAuditKey-digits-1)], "-_.")
	return cmp.Or(edges, "key") + "-" + hex.EncodeToString(sum[:digits/2])
}

func boundMessage(message string) string { return bound(message, maxMessageRunes, true) }

// bound cuts a string to a number of runes and replaces control characters by spaces.
// It keeps line breaks and tabs if lines is set.
func bound(s string, runes int, lines bool) string {
	bad := func(r rune) bool {
		if lines && (r == '\n' || r == '\t') {
			return false
		}
		return unicode.IsControl(r) || r == utf8.RuneError
	}
	if len(s) <= runes && (truncate.IsPlain(s) || strings.IndexFunc(s, bad) < 0) {
		return s
	}
	return truncate.Runes(strings.Map(func(r rune) rune {
		if bad(r) {
			return ' '
		}
		return r
	}, s), runes)
}

func appendStrings(dst []byte, list []string) []byte {
	dst = append(dst, '[')
	for i, s := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = rawjson.AppendString(dst, s)
	}
	return append(dst, ']')
}

func sortedKeys[V any](m map[string]V) []string {
	keys := slices.AppendSeq(make([]string, 0, len(m)), maps.Keys(m))
	slices.Sort(keys)
	return keys
}

// maxPooled bounds the buffers that are kept between requests.
const maxPooled = 256 << 10
