package cli

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gatehouse-dev/gatehouse/internal/shell"
)

// ConfigVariable is the environment variable with the value of --config for commands that are run without the flag.
const ConfigVariable = "GATEHOUSE_CONFIG"

const (
	configFlag = "config"
	// unlessAnnotation lists the flags beside which a command does without --config, and ignores ConfigVariable.
	unlessAnnotation = "gatehouse.dev/unless"
	// variableAnnotation is on a flag whose value is that of ConfigVariable.
	variableAnnotation = "gatehouse.dev/variable"
	// noteAnnotation is on a command of NoteConfigVariable.
	noteAnnotation = "gatehouse.dev/note-variable"
)

// UnlessArguments stands in the list of AddConfigFlag for arguments.
const UnlessArguments = "arguments"

// isSpared reports whether a command does without --config.
func isSpared(cmd *cobra.Command, flag *pflag.Flag) bool {
	return slices.ContainsFunc(flag.Annotations[unlessAnnotation], func(name string) bool {
		return cmd.Flags().Changed(name) || name == UnlessArguments && cmd.Flags().NArg() > 0
	})
}

// AddConfigFlag adds -c and --config, a directory of documents. Beside a flag of unless the command ignores ConfigVariable, because it then
// does without a directory.
func AddConfigFlag(cmd *cobra.Command, value *string, usage string, unless ...string) {
	flags := cmd.Flags()
	flags.StringVarP(value, configFlag, "c", "", usage)
	_ = flags.SetAnnotation(configFlag, unlessAnnotation, unless) // the flag exists
	_ = cmd.MarkFlagDirname(configFlag)
}

// adaptConfigFlag makes --config refuse a second value and mention ConfigVariable in the help.
func adaptConfigFlag(flag *pflag.Flag) {
	flag.Value = onceValue{flag.Value}
	usage, required := strings.CutSuffix(flag.Usage, requiredSuffix)
	flag.Usage = usage + " (default $" + ConfigVariable + ")"
	if required {
		flag.Usage = usage + " (required, or $" + ConfigVariable + ")"
	}
}

// onceValue is the value of a flag that can be given once.
type onceValue struct{ pflag.Value }

// Set sets the value. It returns an error for a second one, because the first would be lost. Completion sets the same one twice.
func (v onceValue) Set(value string) error {
	if before := v.String(); before != "" && before != value {
		return fmt.Errorf("is given twice, before with %q (hint: put the documents into one directory)", before)
	}
	return v.Value.Set(value)
}

// readEnvironment sets --config from ConfigVariable. The flag on the command line has precedence.
func readEnvironment(cmd *cobra.Command) error {
	flag, dir := cmd.Flags().Lookup(configFlag), os.Getenv(ConfigVariable)
	if flag == nil || flag.Changed || dir == "" || isSpared(cmd, flag) {
		return nil
	}
	if err := CheckDir(ConfigVariable, dir); err != nil {
		return err
	}
	if err := cmd.Flags().SetAnnotation(configFlag, variableAnnotation, []string{dir}); err != nil {
		return err
	}
	return cmd.Flags().Set(configFlag, dir)
}

// NoteConfigVariable makes a command say that --config is the value of ConfigVariable when it succeeds, too: for commands whose result
// looks the same with another directory.
func NoteConfigVariable(cmd *cobra.Command) {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[noteAnnotation] = "true"
}

// environmentNote returns a line which says that --config of a command is the value of ConfigVariable, and "" if it is not.
func environmentNote(cmd *cobra.Command) string {
	flag := cmd.Flags().Lookup(configFlag)
	if flag == nil || len(flag.Annotations[variableAnnotation]) == 0 {
		return ""
	}
	return fmt.Sprintf("gatehouse: note: --config %s is the value of the environment variable %s\n", shell.Quote(flag.Value.String()), ConfigVariable)
}
