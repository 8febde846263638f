// Command promql does with PromQL what tests need of Prometheus. `promql parts` takes expressions apart; `promql evaluate`
// evaluates alerts and queries on series of samples, with Prometheus' own rules. Both read JSON values from standard input and
// write one for each. It is a module of its own, so that Prometheus is no dependency of the program.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/prometheus/prometheus/promql/parser"
)

var syntax = parser.NewParser(parser.Options{})

func main() {
	err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "promql:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 1 && args[0] == "parts":
		return each(func(text string) (Parts, error) { return parts(text), nil })
	case len(args) == 1 && args[0] == "evaluate":
		return each(func(e Evaluation) (Result, error) { return evaluate(context.Background(), e) })
	default:
		return errors.New("usage: promql parts|evaluate")
	}
}

// each answers each value of standard input.
func each[In, Out any](answer func(In) (Out, error)) error {
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var value In
		err := in.Decode(&value)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		answered, err := answer(value)
		if err != nil {
			return err
		}
		err = out.Encode(answered)
		if err != nil {
			return err
		}
	}
}
