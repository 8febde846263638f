package junit_test

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/report/junit"
)

func TestWrite(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	err := junit.Write(&out, []junit.Suite{
		{Name: "images", File: "tests/images.yaml", Cases: []junit.Case{
			{Name: "kept", Class: "images", Elapsed: 1500 * time.Millisecond, Output: "a\nremark"},
			{Name: `<"odd"> & name`, Class: "images", Failure: "verdict", Text: "- Allowed\n+ Denied"},
		}},
		{Name: "other", Cases: []junit.Case{{Name: "odd", Class: "other", Error: "no \x00 answer\x1b", Elapsed: time.Millisecond}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	const want = `<?xml version="1.0" encoding="UTF-8"?>
<testsuites tests="3" failures="1" errors="1" time="1.501">
  <testsuite name="images" file="tests/images.yaml" tests="2" failures="1" errors="0" time="1.500">
    <testcase name="kept" classname="images" time="1.500">
      <system-out>a&#xA;remark</system-out>
    </testcase>
    <testcase name="&lt;&#34;odd&#34;&gt; &amp; name" classname="images" time="0.000">
      <failure message="verdict">- Allowed&#xA;+ Denied</failure>
    </testcase>
  </testsuite>
  <testsuite name="other" tests="1" failures="0" errors="1" time="0.001">
    <testcase name="odd" classname="other" time="0.001">
      <error message="no � answer�"></error>
    </testcase>
  </testsuite>
</testsuites>
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	if err := xml.Unmarshal([]byte(out.String()), new(struct{})); err != nil {
		t.Errorf("it is no XML: %v", err)
	}
}

// failing is a full disk.
type failing struct{ room int }

func (f *failing) Write(text []byte) (int, error) {
	if f.room -= len(text); f.room < 0 {
		return 0, io.ErrShortWrite
	}
	return len(text), nil
}

func TestErrorsOfTheWriterAreReturned(t *testing.T) {
	t.Parallel()
	var whole strings.Builder
	if err := junit.Write(&whole, []junit.Suite{{Name: "a"}}); err != nil {
		t.Fatal(err)
	}
	for room := range whole.Len() {
		if err := junit.Write(&failing{room}, []junit.Suite{{Name: "a"}}); !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("with room for %d of %d bytes: %v", room, whole.Len(), err)
		}
	}
}
