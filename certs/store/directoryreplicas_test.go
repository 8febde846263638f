package store

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/certs/internal/certstest"
)

// dated sets the time at which the file of a process was written.
func dated(t *testing.T, d *DirReplicas, at time.Time) {
	t.Helper()
	if err := os.Chtimes(d.file, at, at); err != nil {
		t.Fatal(err)
	}
}

func TestDirReplicasOfPredecessors(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, other    string
		before         time.Duration
		lives, late    bool
		begun, settled string
	}{
		{"killed a moment ago", "one", time.Second, false, false, "one one", "one"},
		{"killed a minute ago", "one", time.Minute, false, false, "one", "one"},
		{"lives beside", "one", 5 * time.Second, true, false, "one one", "one one"},
		{"begins later", "one", 0, false, true, "one one", "one one"},
		{"another name", "two", time.Hour, false, false, "one two", "one two"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			now := time.Now()
			dir, c := t.TempDir(), certstest.NewClockAt(now)
			other, one := NewDirReplicas(dir, row.other, c.Now), NewDirReplicas(dir, "one", c.Now)
			if row.late {
				mustReport(t, one, "one")
			}
			mustReport(t, other, row.other)
			dated(t, other, now.Add(-row.before))
			mustReport(t, one, "one")
			if names := namesOf(mustList(t, one)); names != row.begun {
				t.Errorf("got %s at the beginning", names)
			}
			if row.lives {
				mustReport(t, other, row.other)
				dated(t, other, now.Add(time.Second))
			}
			for range 5 {
				c.Advance(ReportInterval)
				mustReport(t, one, "one")
			}
			if names := namesOf(mustList(t, one)); names != row.settled {
				t.Errorf("got %s in the end", names)
			}
		})
	}
}

// A container that is killed again and again leaves no more than can have lived
// within a minute.
func TestDirReplicasOfACrashLoop(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	now := time.Now()
	var all []*DirReplicas
	for i := range 20 {
		d := NewDirReplicas(dir, "one", nil)
		mustReport(t, d, "one")
		all = append(all, d)
		for j, earlier := range all {
			if _, err := os.Stat(earlier.file); err == nil {
				dated(t, earlier, now.Add(-20*time.Second*time.Duration(i-j+1)))
			}
		}
	}
	if list := mustList(t, all[0]); len(list) > 4 {
		t.Errorf("there are %d reports", len(list))
	}
}

// Of several of one name, the file is known that somebody may have to remove.
func TestDirReplicasFileOf(t *testing.T) {
	t.Parallel()
	dir, c := t.TempDir(), certstest.NewClockAt(time.Now())
	dead, alive := NewDirReplicas(dir, "one", c.Now), NewDirReplicas(dir, "one", c.Now)
	mustReport(t, dead, "one")
	c.Advance(time.Second)
	mustReport(t, alive, "one")
	if got := alive.FileOf("one"); got != "" {
		t.Errorf("got %q before anything was read", got)
	}
	mustList(t, alive)
	if got := alive.FileOf("one"); got != dead.file || filepath.Dir(filepath.Dir(got)) != dir || alive.FileOf("two") != "" {
		t.Errorf("got %q, want %q", got, dead.file)
	}
}
