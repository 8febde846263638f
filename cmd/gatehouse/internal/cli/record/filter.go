package record

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/replay"
	"github.com/gatehouse-dev/gatehouse/webhooks"
)

// reviewFilter are the flags that select reviews of a recording.
type reviewFilter struct {
	namespaces, users, kinds, endpoints []string
	since, until                        string
	// from and to are the times of since and until, after check.
	from, to time.Time
}

// add adds the flags. The verb is what the command does with the reviews.
func (f *reviewFilter) add(cmd *cobra.Command, verb string) {
	flags := cmd.Flags()
	only := verb + " only reviews "
	flags.StringArrayVarP(&f.namespaces, "namespace", "n", nil, only+"of this namespace; repeatable")
	flags.StringArrayVar(&f.users, "user", nil, only+"of this user; repeatable")
	flags.StringArrayVar(&f.kinds, "kind", nil, only+"of this kind, as in Pod or Deployment.apps; repeatable")
	flags.StringArrayVar(&f.endpoints, "endpoint", nil, only+"of this endpoint: "+strings.Join(endpoints(), ", ")+"; repeatable")
	flags.StringVar(&f.since, "since", "", only+"since this time, such as 2026-11-20T12:00:00Z, or 24h or 7d before now")
	flags.StringVar(&f.until, "until", "", only+"before this time, as in --since")
}

func endpoints() (names []string) {
	for _, e := range webhooks.Endpoints() {
		names = append(names, e.Name)
	}
	return names
}

// check parses the times, and returns everything that is wrong with the flags.
func (f *reviewFilter) check(now time.Time) error {
	errs := cli.Problems{checkValues("--endpoint", f.endpoints, endpoints())}
	for _, of := range []struct {
		flag, value string
		into        *time.Time
	}{{"--since", f.since, &f.from}, {"--until", f.until, &f.to}} {
		if of.value == "" {
			continue
		}
		var err error
		*of.into, err = cli.ParseTime(of.value, now)
		errs.Add(err != nil, "%s %q: %w", of.flag, of.value, err)
	}
	errs.Add(!f.from.IsZero() && !f.to.IsZero() && !f.from.Before(f.to), "--since must be before --until")
	return errs.Err()
}

// checkValues returns an error for each value of a flag that is not allowed.
func checkValues(flag string, given, allowed []string) error {
	var errs cli.Problems
	for _, value := range given {
		errs.Add(!slices.Contains(allowed, value), "%s %q: must be one of %s", flag, value, strings.Join(allowed, ", "))
	}
	return errs.Err()
}

// isEmpty reports whether all reviews are selected.
func (f *reviewFilter) isEmpty() bool {
	return len(f.namespaces)+len(f.users)+len(f.kinds)+len(f.endpoints) == 0 && f.from.IsZero() && f.to.IsZero()
}

// matches reports whether a review is selected.
func (f *reviewFilter) matches(s *replay.Subject) bool {
	kind, _, _ := strings.Cut(s.Kind, ".")
	return f.hasTime(s.Time) && isAny(f.namespaces, s.Namespace) && isAny(f.users, s.User) && isAny(f.endpoints, s.Endpoint) &&
		(len(f.kinds) == 0 || slices.ContainsFunc(f.kinds, func(name string) bool { return strings.EqualFold(name, s.Kind) || strings.EqualFold(name, kind) }))
}

// hasTime reports whether reviews of this time are selected.
func (f *reviewFilter) hasTime(at time.Time) bool {
	return (f.from.IsZero() || !at.Before(f.from)) && (f.to.IsZero() || at.Before(f.to))
}

// isAny reports whether a value is in the list of a filter, of which an empty one selects everything.
func isAny(list []string, value string) bool { return len(list) == 0 || slices.Contains(list, value) }
