package tracing

import (
	"fmt"
	"strings"
	"testing"
)

const (
	traceID = "4bf92f3577b34da6a3ce929d0e0e4736"
	spanID  = "00f067aa0ba902b7"
)

func TestParseTraceParent(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, header  string
		valid, sample bool
	}{
		{"sampled", "00-" + traceID + "-" + spanID + "-01", true, true},
		{"not sampled", "00-" + traceID + "-" + spanID + "-00", true, false},
		{"sampled, with flags of a later level", "00-" + traceID + "-" + spanID + "-03", true, true},
		{"a later version that says more", "01-" + traceID + "-" + spanID + "-01-what-else", true, true},
		{"a later version that says no more", "cc-" + traceID + "-" + spanID + "-01", true, true},
		{"a later version, not taken apart", "01-" + traceID + "-" + spanID + "-01.more", false, false},
		{"nothing", "", false, false},
		{"version 00 that says more", "00-" + traceID + "-" + spanID + "-01-x", false, false},
		{"the version that is none", "ff-" + traceID + "-" + spanID + "-01", false, false},
		{"upper case", "00-" + strings.ToUpper(traceID) + "-" + spanID + "-01", false, false},
		{"a trace of zeros", "00-" + strings.Repeat("0", 32) + "-" + spanID + "-01", false, false},
		{"a span of zeros", "00-" + traceID + "-" + strings.Repeat("0", 16) + "-01", false, false},
		{"too short", "00-" + traceID + "-" + spanID + "-0", false, false},
		{"other separators", "00_" + traceID + "_" + spanID + "_01", false, false},
		{"no digits", "00-" + strings.Repeat("g", 32) + "-" + spanID + "-01", false, false},
		{"line breaks", "00-" + traceID + "-" + spanID + "-\n1", false, false},
		{"a kilobyte", strings.Repeat("0-", 512), false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p, valid := parseTraceParent(tc.header)
			if valid != tc.valid || p.sampled != tc.sample {
				t.Fatalf("parseTraceParent(%q) = sampled %t, %t", tc.header, p.sampled, valid)
			}
			if valid && (fmt.Sprintf("%x", p.trace) != traceID || fmt.Sprintf("%x", p.span) != spanID) {
				t.Errorf("parseTraceParent(%q) = %x, %x", tc.header, p.trace, p.span)
			}
		})
	}
}

func FuzzParseTraceParent(f *testing.F) {
	f.Add("00-" + traceID + "-" + spanID + "-01")
	f.Add("01-" + traceID + "-" + spanID + "-00-more")
	f.Fuzz(func(t *testing.T, header string) {
		p, valid := parseTraceParent(header)
		if !valid {
			return
		}
		again := fmt.Sprintf("%s-%x-%x-", header[:2], p.trace, p.span)
		if !strings.HasPrefix(header, again) || p.trace == [16]byte{} || p.span == [8]byte{} {
			t.Errorf("parseTraceParent(%q) = %x, %x", header, p.trace, p.span)
		}
	})
}
