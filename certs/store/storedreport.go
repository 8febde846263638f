package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/gatehouse-dev/gatehouse/certs/internal/clock"
	"github.com/gatehouse-dev/gatehouse/certs/rotation"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
)

const (
	// UnreadableIssuer is the Issuer of a Report that cannot be read, and of one whose
	// certificate leads to none of the CAs of the state. A rotation waits for such a
	// replica.
	UnreadableIssuer = "unreadable"
	// longestLeafLife is how long a serving certificate may last where nobody says
	// how long they do.
	longestLeafLife = 366 * 24 * time.Hour
	// clockTolerance is how much the clocks of replicas may differ. It is also how
	// long a report is kept that no rotation waits for.
	clockTolerance = 24 * time.Hour
	// longestName is the longest name that is taken over from a report.
	longestName = 253
	// tidied is how many reports are removed by one List at most.
	tidied = 10
)

// storedReport is a report as it was found. It is not trusted: anyone with the right may
// have written it.
type storedReport struct {
	// place is the name of the object or file, and location what a person needs to
	// remove it.
	place, location string
	// replica, sha256, notAfter and version are as they were found; issuer is nil
	// if it was not.
	replica, sha256, notAfter, version string
	issuer                             *string
	// claimed is when the replica says that it wrote it, zero if it does not, and
	// written when that was at the earliest by the clock of whoever keeps it.
	claimed, written time.Time
	// remove deletes it unless it has been written since. A replica that cannot remove it leaves
	// it to another replica.
	remove func(context.Context)
}

// storedReports are all reports of a Replicas that is shared.
type storedReports interface {
	each(ctx context.Context, do func(*storedReport)) error
}

// listReports returns reports in the order of their replicas' names. It removes those
// that are over, some at a time, if removes is set. life is how long a certificate of the
// reader lasts.
func listReports(ctx context.Context, stored storedReports, now time.Time, life time.Duration, removes bool) ([]rotation.Report, error) {
	var (
		reports []rotation.Report
		removed int
	)
	err := stored.each(ctx, func(t *storedReport) {
		report, over := t.report(now, life)
		switch {
		case !over:
			reports = append(reports, report)
		case removes && removed < tidied:
			removed++
			t.remove(ctx)
		}
	})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(reports, func(a, b rotation.Report) int { return cmp.Compare(a.Replica, b.Replica) })
	return reports, nil
}

// report returns the verified part of it, for a reader whose own certificates last for
// life. Those of others may last for the usual time all the same. over reports whether the
// replica has been unreachable for a day, and its certificate has ended.
//
// A certificate has ended at the latest when one has that was issued when its replica was
// last seen, so that no report delays a rotation for ever. A report that cannot be read
// delays it for as long: an isolated replica may still serve its certificate.
func (t *storedReport) report(now time.Time, life time.Duration) (r rotation.Report, over bool) {
	if life <= 0 {
		life = longestLeafLife
	}
	life = max(life, rotation.DefaultLeafLife)
	lastSeen := t.claimed
	if lastSeen.After(now.Add(clockTolerance)) || lastSeen.Before(t.written.Add(-clockTolerance)) {
		lastSeen = t.written // no clock says that
	}
	latest := lastSeen.Add(life)
	r = rotation.Report{
		Replica: printable(t.replica), Issuer: UnreadableIssuer, NotAfter: latest,
		Seen: clock.Earlier(lastSeen, now), Version: truncate.Runes(printable(t.version), 64), Location: t.location,
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
	return r, now.After(lastSeen.Add(clockTolerance)) && now.After(r.NotAfter)
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
	return truncate.Runes(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, text), longestName)
}

// shortName returns a unique name of at most so many characters for a group's replica, or
// for the group with "". It is a DNS subdomain if the length allows it, and begins with the
// names themselves.
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
