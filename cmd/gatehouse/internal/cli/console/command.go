package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
)

// output is what a command has printed.
type output struct {
	out []byte
	// messages is standard error.
	messages string
	code     int
}

// maxOutput bounds what a command may print for a page, in bytes.
const maxOutput = 64 << 20

// execute runs a command. The context may cancel it.
func (c *console) execute(ctx context.Context, in []byte, args ...string) *output {
	out, messages := &limitedBuffer{left: maxOutput}, &limitedBuffer{left: maxOutput}
	code := c.run(ctx, args, cli.Streams{In: bytes.NewReader(in), Out: out, Err: messages})
	return &output{out.Bytes(), strings.TrimSpace(messages.String()), code}
}

// err returns what the command says if it could not do its work: exit code 2 without a result.
func (o *output) err() error {
	if o.code < cli.ExitUnknown || len(bytes.TrimSpace(o.out)) > 0 {
		return nil
	}
	return errors.New(strings.ReplaceAll(o.messages, "gatehouse: ", ""))
}

// decode decodes the JSON of a command.
func (o *output) decode(into any) error {
	if err := o.err(); err != nil {
		return err
	}
	if err := json.Unmarshal(o.out, into); err != nil {
		return fmt.Errorf("the output of the command cannot be read: %w", err)
	}
	return nil
}

// problems returns the messages of a command, by line.
func (o *output) problems() []string {
	if o.messages == "" {
		return nil
	}
	const most = 50
	lines := strings.Split(strings.ReplaceAll(o.messages, "gatehouse: ", ""), "\n")
	return lines[:min(len(lines), most)]
}

// decodeLines decodes the JSON of a command, an object a line.
func decodeLines[T any](out []byte) (all []T, err error) {
	decoder := json.NewDecoder(bytes.NewReader(out))
	for {
		var one T
		if err := decoder.Decode(&one); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("the output of the command cannot be read: %w", err)
		}
		all = append(all, one)
	}
}

// limitedBuffer is a buffer that refuses to grow further.
type limitedBuffer struct {
	bytes.Buffer

	left int
}

// Write implements io.Writer.
func (b *limitedBuffer) Write(p []byte) (int, error) {
	if b.left -= len(p); b.left < 0 {
		return 0, io.ErrShortWrite
	}
	return b.Buffer.Write(p)
}
