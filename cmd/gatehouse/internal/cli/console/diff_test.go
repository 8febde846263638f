package console

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func TestSideBySide(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before, after string
		want          []diffRow
	}{
		"the same":    {"a\nb\n", "a\nb\n", nil},
		"both empty":  {"", "", nil},
		"no new line": {"a", "a\n", nil},
		"all is new":  {"", "a\nb", []diffRow{{Kind: "added", RightLine: 1, Right: "a"}, {Kind: "added", RightLine: 2, Right: "b"}}},
		"all is gone": {"a", "", []diffRow{{Kind: "removed", LeftLine: 1, Left: "a"}}},
		"a line changes": {"a\nb\nc\n", "a\nB\nc\n", []diffRow{
			{Kind: "same", LeftLine: 1, RightLine: 1, Left: "a", Right: "a"},
			{Kind: "changed", LeftLine: 2, RightLine: 2, Left: "b", Right: "B"},
			{Kind: "same", LeftLine: 3, RightLine: 3, Left: "c", Right: "c"},
		}},
		"more lines than before": {"a\nb\nc\n", "a\n--- x\n+++ y\nc\n", []diffRow{
			{Kind: "same", LeftLine: 1, RightLine: 1, Left: "a", Right: "a"},
			{Kind: "changed", LeftLine: 2, RightLine: 2, Left: "b", Right: "--- x"},
			{Kind: "added", RightLine: 3, Right: "+++ y"},
			{Kind: "same", LeftLine: 3, RightLine: 4, Left: "c", Right: "c"},
		}},
		"far lines are folded": {lines(1, 20), strings.Replace(lines(1, 20), "10\n", "", 1), []diffRow{
			{Kind: "folded", Folded: "6 lines are the same"},
			{Kind: "same", LeftLine: 7, RightLine: 7, Left: "7", Right: "7"},
			{Kind: "same", LeftLine: 8, RightLine: 8, Left: "8", Right: "8"},
			{Kind: "same", LeftLine: 9, RightLine: 9, Left: "9", Right: "9"},
			{Kind: "removed", LeftLine: 10, Left: "10"},
			{Kind: "same", LeftLine: 11, RightLine: 10, Left: "11", Right: "11"},
			{Kind: "same", LeftLine: 12, RightLine: 11, Left: "12", Right: "12"},
			{Kind: "same", LeftLine: 13, RightLine: 12, Left: "13", Right: "13"},
			{Kind: "folded", Folded: "7 lines are the same"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := sideBySide([]byte(c.before), []byte(c.after)); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v\nwant %+v", got, c.want)
			}
		})
	}
}

func TestSideBySideIsBounded(t *testing.T) {
	t.Parallel()
	rows := sideBySide(nil, []byte(lines(1, 3000)))
	if got := rows[len(rows)-1].Folded; len(rows) != maxDiffRows+1 || got != "1000 more rows are not shown" {
		t.Errorf("got %d rows, the last %q", len(rows), got)
	}
}

func lines(from, to int) string {
	var b strings.Builder
	for i := from; i <= to; i++ {
		_, _ = fmt.Fprintln(&b, i)
	}
	return b.String()
}
