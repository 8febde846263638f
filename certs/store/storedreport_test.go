package store

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gatehouse-dev/gatehouse/certs/internal/certstest"
	"github.com/gatehouse-dev/gatehouse/certs/internal/clock"
	"github.com/gatehouse-dev/gatehouse/certs/rotation"
)

var (
	issuerA = strings.Repeat("a1", 32)
	leafA   = strings.Repeat("b2", 32)
)

// at is a time that is so long after noon, as texts in reports are.
func at(d time.Duration) string { return clock.Stamp(certstest.Noon.Add(d)) }

func TestReportIsBelieved(t *testing.T) {
	t.Parallel()
	good := storedReport{place: "ca-one-0", replica: "one", sha256: leafA, notAfter: at(5 * 24 * time.Hour), version: "1.2.3", issuer: &issuerA, claimed: certstest.Noon, written: certstest.Noon}
	none, short, upper, long := "", "abc", strings.ToUpper(issuerA), issuerA+"00"
	for _, c := range []struct {
		name   string
		change func(t *storedReport)
		// until is for how long the replica is waited for, and issuer what it serves.
		issuer string
		until  time.Duration
		seen   time.Duration
	}{
		{"good", func(*storedReport) {}, issuerA, 5 * 24 * time.Hour, 0},
		{"key identifier in the place of a fingerprint", func(t *storedReport) { id := issuerA[:40]; t.issuer = &id }, issuerA[:40], 5 * 24 * time.Hour, 0},
		{"serves nothing", func(t *storedReport) { t.issuer, t.notAfter = &none, "" }, "", -1, 0},
		{"serves nothing until some time", func(t *storedReport) { t.issuer = &none }, "", -1, 0},
		{"no issuer", func(t *storedReport) { t.issuer = nil }, UnreadableIssuer, 5 * 24 * time.Hour, 0},
		{"issuer of odd length", func(t *storedReport) { t.issuer = &short }, UnreadableIssuer, 5 * 24 * time.Hour, 0},
		{"issuer in upper case", func(t *storedReport) { t.issuer = &upper }, UnreadableIssuer, 5 * 24 * time.Hour, 0},
		{"issuer too long", func(t *storedReport) { t.issuer = &long }, UnreadableIssuer, 5 * 24 * time.Hour, 0},
		{"no end", func(t *storedReport) { t.notAfter = "" }, issuerA, certstest.Week, 0},
		{"end that is no time", func(t *storedReport) { t.notAfter = "soon" }, issuerA, certstest.Week, 0},
		{"end in a thousand years", func(t *storedReport) { t.notAfter = "3026-11-20T12:00:00Z" }, issuerA, certstest.Week, 0},
		{"end that is too long", func(t *storedReport) { t.notAfter = at(0)[:19] + "." + strings.Repeat("9", 1<<20) + "Z" }, issuerA, time.Second - 1, 0},
		{"end in year 10000", func(t *storedReport) { t.notAfter = "10000-01-01T00:00:00Z" }, issuerA, certstest.Week, 0},
		{"ended", func(t *storedReport) { t.notAfter = at(-time.Hour) }, issuerA, -time.Hour, 0},
		{"away, and may serve still", func(t *storedReport) {
			t.claimed, t.written = certstest.Noon.Add(-2*24*time.Hour), certstest.Noon.Add(-2*24*time.Hour)
		}, issuerA, 5 * 24 * time.Hour, -2 * 24 * time.Hour},
		{"away, and says that it serves for ever", func(t *storedReport) {
			t.claimed, t.written, t.notAfter = certstest.Noon.Add(-2*24*time.Hour), certstest.Noon.Add(-2*24*time.Hour), "9999-12-31T23:59:59Z"
		}, issuerA, 5 * 24 * time.Hour, -2 * 24 * time.Hour},
		{"clock an hour ahead", func(t *storedReport) {
			t.claimed, t.notAfter = certstest.Noon.Add(time.Hour), at(certstest.Week+time.Hour)
		}, issuerA, certstest.Week + time.Hour, 0},
		{"clock an hour behind", func(t *storedReport) {
			t.claimed, t.notAfter = certstest.Noon.Add(-time.Hour), at(certstest.Week-time.Hour)
		}, issuerA, certstest.Week - time.Hour, -time.Hour},
		{"heard of in a thousand years", func(t *storedReport) {
			t.claimed, t.notAfter = certstest.Noon.AddDate(1000, 0, 0), "3026-12-20T12:00:00Z"
		}, issuerA, certstest.Week, 0},
		{"written by the clock of nobody for a year", func(t *storedReport) { t.written = certstest.Noon.AddDate(-1, 0, 0) }, issuerA, 5 * 24 * time.Hour, 0},
		{"heard of in the year 1", func(t *storedReport) { t.claimed = time.Time{} }, issuerA, 5 * 24 * time.Hour, 0},
		{"heard of long before it was written", func(t *storedReport) { t.claimed = certstest.Noon.AddDate(-1, 0, 0) }, issuerA, 5 * 24 * time.Hour, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			found := good
			c.change(&found)
			got, over := found.report(certstest.Noon, certstest.Week)
			if got.Issuer != c.issuer || !got.Seen.Equal(certstest.Noon.Add(c.seen)) || over {
				t.Errorf("got %+v, over: %t", got, over)
			}
			state := rotation.State{Current: certstest.NewCA(t).Authority}
			wait := func(now time.Time) bool {
				return len(state.Waiting(&rotation.Observation{Now: now, Replicas: []rotation.Report{got}})) > 0
			}
			if end := certstest.Noon.Add(c.until); c.until >= 0 && !wait(end.Add(-time.Second)) || wait(end.Add(time.Second)) {
				t.Errorf("waited for until %s, want %s", got.NotAfter, end)
			}
		})
	}
}

func TestReportNames(t *testing.T) {
	t.Parallel()
	found := storedReport{place: "the-place", replica: "\x1b[31m" + strings.Repeat("é", 1000) + "\n", version: strings.Repeat("9", 1000), sha256: "no", issuer: &issuerA}
	got, _ := found.report(certstest.Noon, certstest.Week)
	if want := "[31m" + strings.Repeat("é", longestName-5) + "…"; got.Replica != want || len(got.Version) > 70 || got.SHA256 != "" {
		t.Errorf("got %+v", got)
	}
	found.replica = "\n"
	if got, _ = found.report(certstest.Noon, certstest.Week); got.Replica != "the-place" {
		t.Errorf("got %q for a replica without a name", got.Replica)
	}
}

// A report is forgotten a day after its replica was heard of, and not before what
// it served has ended.
func TestReportIsOver(t *testing.T) {
	t.Parallel()
	day := 24 * time.Hour
	none := ""
	for _, c := range []struct {
		name   string
		issuer *string
		end    string
		life   time.Duration
		over   time.Duration
	}{
		{"serves nothing", &none, "", certstest.Week, day},
		{"ends within the day", &issuerA, at(time.Hour), certstest.Week, day},
		{"ends later", &issuerA, at(3 * day), certstest.Week, 3 * day},
		{"never ends", &issuerA, at(3000 * day), certstest.Week, certstest.Week},
		{"cannot be read", nil, "?", certstest.Week, certstest.Week},
		{"one that ends after a shorter life than usual", &issuerA, at(certstest.Week), time.Hour, certstest.Week},
		{"never ends, where lives are longer", &issuerA, at(3000 * day), 30 * day, 30 * day},
		{"where nobody knows how long certificates last", nil, "?", 0, longestLeafLife},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			found := storedReport{place: "x", issuer: c.issuer, notAfter: c.end, claimed: certstest.Noon, written: certstest.Noon}
			if _, over := found.report(certstest.Noon.Add(c.over), c.life); over {
				t.Error("over too soon")
			}
			if _, over := found.report(certstest.Noon.Add(c.over+time.Second), c.life); !over {
				t.Error("not over")
			}
		})
	}
}

func TestShortName(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 300)
	pairs := [][2]string{
		{"ca", "gatehouse-7d9c8-x2x4k"},
		{"a", "b-c"},
		{"a-b", "c"},
		{"", ""},
		{"ca", ""},
		{"", "ca"},
		{"ca", "Host.Example.ORG"},
		{"ca", "host.example.org"},
		{"ca", "ä/../.."},
		{"-", "-"},
		{long, long},
		{long, long + "y"},
		{"ca", "a_b"},
		{"ca", "a-b"},
		{"ca", strings.Repeat("-", 200)},
	}
	seen := map[string][2]string{}
	for _, p := range pairs {
		for _, most := range []int{validation.DNS1123SubdomainMaxLength, validation.LabelValueMaxLength} {
			name := shortName(p[0], p[1], most)
			if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 || len(name) > most {
				t.Errorf("%q of %d characters: %v", name, len(name), problems)
			}
			if most != validation.LabelValueMaxLength {
				continue
			}
			if problems := validation.IsValidLabelValue(name); len(problems) > 0 {
				t.Errorf("%q: %v", name, problems)
			}
			if other, taken := seen[name]; taken {
				t.Errorf("%q is the name of %q and %q", name, p, other)
			}
			seen[name] = p
		}
	}
	if got := shortName("ca", "gatehouse-7d9c8-x2x4k", 253); !strings.HasPrefix(got, "ca-gatehouse-7d9c8-x2x4k-") {
		t.Errorf("nobody recognises %q", got)
	}
}

// checkReport is what holds of every report, whoever wrote it.
func checkReport(t *testing.T, found *storedReport) {
	t.Helper()
	got, over := found.report(certstest.Noon, certstest.Week)
	switch {
	case got.Seen.After(certstest.Noon):
		t.Errorf("heard of in the future: %+v", got)
	case got.NotAfter.After(found.written.Add(clockTolerance + certstest.Week)):
		t.Errorf("waited for until %s", got.NotAfter)
	case got.Issuer != "" && got.Issuer != UnreadableIssuer && !isFingerprint(got.Issuer):
		t.Errorf("issuer %q", got.Issuer)
	case len([]rune(got.Replica)) > longestName || len([]rune(got.Version)) > 64 || printable(got.Replica) != got.Replica && len([]rune(got.Replica)) <= longestName:
		t.Errorf("names %q and %q", got.Replica, got.Version)
	case over && certstest.Noon.Before(found.written):
		t.Error("forgotten before it was written")
	}
}

func FuzzLease(f *testing.F) {
	f.Add("one", issuerA, leafA, at(certstest.Week), "1.2.3", certstest.Noon.Unix())
	f.Add("", "", "", "", "", int64(0))
	f.Add("\x00", "unreadable", "x", "9999-12-31T23:59:59Z", "\n", int64(1)<<40)
	f.Fuzz(func(t *testing.T, holder, issuer, sha256, notAfter, version string, renewed int64) {
		renew := metav1.NewMicroTime(time.Unix(renewed%(1<<40), 0))
		checkReport(t, reportOfLease(&coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: "x", CreationTimestamp: metav1.NewTime(certstest.Noon), Annotations: map[string]string{
				issuerAnnotation: issuer, sha256Annotation: sha256, notAfterAnnotation: notAfter, versionAnnotation: version,
			}},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &renew},
		}))
	})
}

func FuzzReportFile(f *testing.F) {
	whole, err := json.Marshal(reportFile{Replica: "one", Issuer: &issuerA, SHA256: leafA, NotAfter: at(certstest.Week), Seen: at(0), Version: "1"})
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{string(whole), string(whole[:40]), "", "null", "[]", `{"issuer":7}`, `{"replica":"` + strings.Repeat("x", 1000) + `"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) { checkReport(t, parseReport("x", content, certstest.Noon)) })
}

func FuzzAuthorityFile(f *testing.F) {
	for _, seed := range []string{``, `{}`, `null`, `[]`, `{"state.json":"{}"}`, `{"state.json":1}`, `{"x":"y"}`, "\xff", `{"current.key":"-----BEGIN`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		data := parseAuthority(content)
		if len(content) > 0 && data == nil {
			t.Error("what is there is taken for nothing")
		}
		state, err := rotation.Decode(data)
		if (state == nil) == (err == nil) && err == nil {
			t.Error("neither a state nor an error")
		}
		if err != nil && len(content) > 8 && strings.Contains(err.Error(), string(content)) {
			t.Errorf("repeats what it read: %v", err)
		}
		_ = fmt.Sprint(foreignKeys(data))
	})
}
