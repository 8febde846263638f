package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// FlagGroup is a heading of a command's help, and the names of its flags.
type FlagGroup struct {
	Title string
	Flags []string
}

// groupAnnotation is the place of a flag's group among all of its command, and its title.
const groupAnnotation = "gatehouse.dev/group"

// GroupFlags has the help of a command show its flags below headings, as kube-apiserver's does. A flag without a group comes last.
func GroupFlags(cmd *cobra.Command, groups ...FlagGroup) {
	for i, group := range groups {
		for _, name := range group.Flags {
			_ = cmd.Flags().SetAnnotation(name, groupAnnotation, []string{fmt.Sprintf("%03d", i), group.Title}) // the flag exists
		}
	}
	registerFlagGroups()
	cmd.SetUsageTemplate(strings.Replace(cmd.UsageTemplate(), "Flags:\n{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}", "{{flagGroups .LocalFlags}}", 1))
}

// registerFlagGroups registers the function of templates once, because cobra's functions are those of the process.
//
//nolint:gochecknoglobals // as in cobra
var registerFlagGroups = sync.OnceFunc(func() { cobra.AddTemplateFunc("flagGroups", flagGroups) })

// flagGroups returns the usages of flags below the titles of their groups.
func flagGroups(all *pflag.FlagSet) string {
	sections, titles := map[string]*pflag.FlagSet{}, map[string]string{}
	all.VisitAll(func(f *pflag.Flag) {
		place, title := "last", "Other"
		if group := f.Annotations[groupAnnotation]; group != nil {
			place, title = group[0], group[1]
		}
		if sections[place] == nil {
			sections[place], titles[place] = pflag.NewFlagSet(title, pflag.ContinueOnError), title
		}
		sections[place].AddFlag(f)
	})
	var b strings.Builder
	for _, place := range slices.Sorted(maps.Keys(sections)) {
		if flags := sections[place]; flags.HasAvailableFlags() {
			fmt.Fprintf(&b, "%s flags:\n%s\n", titles[place], flags.FlagUsages())
		}
	}
	return strings.TrimRight(b.String(), "\n")
}
