package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
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

// commandOutput is what a command has printed, for the template "output".
type commandOutput struct {
	Text     string
	Problems []string
}

// maxShown bounds the output of a command on a page, in bytes.
const maxShown = 1 << 20

// show returns the output of a command for a page. Clean changes what nobody should see, such as names of temporary directories; it may be nil.
func (o *output) show(clean func(string) string) *commandOutput {
	out := &commandOutput{Text: string(o.out), Problems: o.problems()}
	if len(out.Text) > maxShown {
		out.Text = truncate.Bytes(out.Text, maxShown)
		out.Problems = append(out.Problems, "The output is long, and this is its beginning (hint: run the command).")
	}
	if clean != nil {
		out.Text = clean(out.Text)
		for i := range out.Problems {
			out.Problems[i] = clean(out.Problems[i])
		}
	}
	return out
}

// commandPart returns a part of a page that shows what a command prints.
func (c *console) commandPart(name, title string, words ...string) part {
	return part{name, title, "", "command", func(r *http.Request) (partData, error) {
		out := c.execute(r.Context(), nil, words...).show(nil)
		if r.Context().Err() != nil {
			return partData{Command: words}, context.Cause(r.Context())
		}
		return partData{Data: out, Command: words}, nil
	}}
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
