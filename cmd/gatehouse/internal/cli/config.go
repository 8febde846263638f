package cli

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const (
	configFlag = "config"
	// unlessAnnotation lists the flags beside which a command does without a required --config.
	unlessAnnotation = "gatehouse.dev/unless"
)

// UnlessArguments stands in the list of AddConfigFlag for arguments.
const UnlessArguments = "arguments"

// isSpared reports whether a command does without a required flag.
func isSpared(cmd *cobra.Command, flag *pflag.Flag) bool {
	return slices.ContainsFunc(flag.Annotations[unlessAnnotation], func(name string) bool {
		return cmd.Flags().Changed(name) || name == UnlessArguments && cmd.Flags().NArg() > 0
	})
}

// AddConfigFlag adds -c and --config, a directory of documents. If it is required, the command does without it beside a flag of unless.
func AddConfigFlag(cmd *cobra.Command, value *string, usage string, unless ...string) {
	flags := cmd.Flags()
	flags.StringVarP(value, configFlag, "c", "", usage)
	_ = flags.SetAnnotation(configFlag, unlessAnnotation, unless) // the flag exists
}

// onceValue is the value of a flag that can be given once.
type onceValue struct{ pflag.Value }

// Set sets the value. It returns an error for a second one, because the first would be lost.
func (v onceValue) Set(value string) error {
	if before := v.String(); before != "" && before != value {
		return fmt.Errorf("is given twice, before with %q (hint: put the documents into one directory)", before)
	}
	return v.Value.Set(value)
}

// RefuseEmpty has these flags refuse an empty value, such as that of a variable which is not set: for what narrows something it would mean all.
func RefuseEmpty(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		flag := flags.Lookup(name)
		flag.Value = filledValue{flag.Value}
	}
}

// filledValue is the value of a flag that is not empty.
type filledValue struct{ pflag.Value }

// Set sets the value.
func (v filledValue) Set(value string) error {
	if value == "" {
		return errors.New("must not be empty (hint: leave out the flag if nothing should be narrowed)")
	}
	return v.Value.Set(value)
}
