package store

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"
	"unicode"

	"github.com/gatehouse-dev/gatehouse/certs/internal/clock"
	"github.com/gatehouse-dev/gatehouse/certs/internal/kube"
	"github.com/gatehouse-dev/gatehouse/certs/rotation"
)

const (
	// UnreadableIssuer is the Issuer of a Report that does not say, in a way that
	// can be read, what its replica serves, and of one whose certificate leads to
	// none of the CAs of the state. Such a replica is waited for.
	UnreadableIssuer = "unreadable"
	// longestLeafLife is how long a serving certificate may last where nobody says
	// how long they do.
	longestLeafLife = 366 * 24 * time.Hour
	// clockTolerance is how much the clocks of replicas may differ. It is also how
	// long a report is kept that nobody waits for any more.
	clockTolerance = 24 * time.Hour
	// longestName is how much of a name of somebody else's choice is taken over.
	longestName = 253
)

// storedReport is a report as it was found. It is not trusted: anyone with the right may
// have written it.
type storedReport struct {
	// place is the name of the object or file.
	place string
	// replica, sha256, notAfter and version are as they were found; issuer is nil
	// if it was not.
	replica, sha256, notAfter, version string
	issuer                             *string
	// claimed is when the replica says that it wrote it, zero if it does not, and
	// written when that was at the earliest by the clock of whoever keeps it.
	claimed, written time.Time
}

// report is what can be believed of it, by a reader whose own certificates last so
// long. Those of others may last for the usual time all the same. Over tells that
// the replica has been away for a day, and that what it served has ended.
//
// No report makes anybody wait for ever: what its replica serves has ended at the
// latest when a certificate has that was issued when it was last heard of. And
// none that cannot be read makes anybody wait for less than that: a replica that
// is cut off may serve it still.
func (t *storedReport) report(now time.Time, life time.Duration) (r rotation.Report, over bool) {
	if life <= 0 {
		life = longestLeafLife
	}
	life = max(life, rotation.DefaultLeafLife)
	heard := t.claimed
	if heard.After(now.Add(clockTolerance)) || heard.Before(t.written.Add(-clockTolerance)) {
		heard = t.written // no clock says that
	}
	latest := heard.Add(life)
	r = rotation.Report{
		Replica: printable(t.replica), Issuer: UnreadableIssuer, NotAfter: latest,
		Seen: clock.Earlier(heard, now), Version: kube.Truncate(printable(t.version), 64),
	}
	if r.Replica == "" {
		r.Replica = printable(t.place)
	}
	if t.issuer != nil && (*t.issuer == "" || isFingerprint(*t.issuer)) {
		r.Issuer = *t.issuer
	}
	if isFingerprint(t.sha256) {
		r.SHA256 = t.sha256
	}
	if end, err := time.Parse(time.RFC3339, t.notAfter); err == nil {
		r.NotAfter = clock.Earlier(end.UTC(), latest)
	}
	if r.Issuer == "" {
		r.NotAfter = time.Time{}
	}
	return r, now.After(heard.Add(clockTolerance)) && now.After(r.NotAfter)
}

// locations are where reports were found, by the names of their replicas: of several
// of one name, that of the one which has been silent for longest.
type locations map[string]location

type location struct {
	name string
	seen time.Time
}

func (p locations) add(r *rotation.Report, name string) {
	if found, ok := p[r.Replica]; !ok || r.Seen.Before(found.seen) {
		p[r.Replica] = location{name, r.Seen}
	}
}

// isFingerprint reports whether a string is lower-case hexadecimal of at most the length
// of an Authority's ID.
func isFingerprint(text string) bool {
	if text == "" || len(text) > hex.EncodedLen(sha256.Size) || strings.ToLower(text) != text {
		return false
	}
	_, err := hex.DecodeString(text)
	return err == nil
}

// printable returns a string without control characters, truncated.
func printable(text string) string {
	return kube.Truncate(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, text), longestName)
}

// shortName is a name of at most so many characters for a group's replica, or for
// the group with "", which no other one has. It is a DNS subdomain, or would be if
// the length were right, and people recognise it.
func shortName(group, replica string, most int) string {
	sum := sha256.Sum256([]byte(group + "\x00" + replica))
	name := hex.EncodeToString(sum[:8])
	each := (most-len(name))/2 - 1
	for _, part := range []string{replica, group} {
		part = strings.Map(func(r rune) rune {
			switch {
			case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
				return r
			case r >= 'A' && r <= 'Z':
				return r - 'A' + 'a'
			default:
				return '-'
			}
		}, part)
		if part = strings.Trim(part[:min(len(part), each)], "-"); part != "" {
			name = part + "-" + name
		}
	}
	return name
}
