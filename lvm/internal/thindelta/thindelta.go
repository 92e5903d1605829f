package thindelta

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"

	"github.com/nodelvm/nodelvm/internal/dm"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/tail"
)

// Command is the program on the node. It reads the metadata only, and can be ended at any time.
type Command struct{}

var _ lvm.Delta = Command{}

// Compare is lvm.Delta's. The pool has a metadata snapshot.
func (Command) Compare(ctx context.Context, metadata string, one, two int, each func(from, length int64)) (chunk lvm.Bytes, err error) {
	path, err := dm.LookPath("thin_delta")
	if err != nil {
		return 0, lvm.Errorf(lvm.KindInternal, "cannot run thin_delta: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	command := exec.CommandContext(ctx, path, "--metadata-snap", "--snap1", strconv.Itoa(one), "--snap2", strconv.Itoa(two), metadata)
	command.Env = []string{"LC_ALL=C", "PATH=" + dm.CommandPath}
	var stderr tail.Buffer
	command.Stderr = &stderr
	stdout, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		return 0, lvm.Errorf(lvm.KindInternal, "cannot run thin_delta: %w", err)
	}
	chunk, err = Parse(stdout, each)
	if err != nil {
		cancel()
	}
	if failure := command.Wait(); failure != nil && (err == nil || stderr.Line() != "") {
		err = fmt.Errorf("%w: %s", failure, stderr.Line())
	}
	if err != nil {
		return 0, lvm.Errorf(lvm.KindInternal, "thin_delta cannot compare the thin volumes %d and %d on %s: %w", one, two, metadata, err)
	}
	return chunk, nil
}

// maxChunk is the kernel's limit for a pool's chunk.
const maxChunk = 1 * lvm.GiB

// Parse reads what thin_delta prints, and calls each for every part that may differ. It holds one element at a time in memory. An error means that
// what it called is not all.
//
//	<superblock uuid="" time="1" transaction="2" data_block_size="128" nr_data_blocks="400">
//	  <diff left="1" right="2">
//	    <same begin="0" length="8"/> <different begin="8" length="1"/> <left_only begin="9" length="1"/> <right_only begin="10" length="1"/>
//	  </diff>
//	</superblock>
func Parse(r io.Reader, each func(from, length int64)) (chunk lvm.Bytes, err error) {
	decoder := xml.NewDecoder(r)
	compared, ended := false, false
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, fmt.Errorf("cannot read its output: %w", err)
		}
		if end, is := token.(xml.EndElement); is && end.Name.Local == "superblock" {
			ended = true
		}
		element, is := token.(xml.StartElement)
		if !is {
			continue
		}
		switch element.Name.Local {
		case "superblock":
			sectors, err := number(element, "data_block_size")
			if chunk = lvm.Bytes(sectors) * lvm.SectorSize; err != nil || sectors <= 0 || chunk > maxChunk {
				return 0, fmt.Errorf("its output has no size of chunks: %w", err)
			}
		case "diff":
			compared = true
		case "different", "left_only", "right_only":
			from, wrong := number(element, "begin")
			length, err := number(element, "length")
			if err = errors.Join(wrong, err); err != nil || from < 0 || length <= 0 {
				return 0, fmt.Errorf("its output has the range %d, %d: %w", from, length, err)
			}
			each(from, length)
		case "same":
		default:
			return 0, fmt.Errorf("its output has the element %.40q", element.Name.Local)
		}
	}
	if chunk == 0 || !compared || !ended {
		return 0, errors.New("its output is incomplete")
	}
	return chunk, nil
}

func number(element xml.StartElement, name string) (int64, error) {
	for _, a := range element.Attr {
		if a.Name.Local == name {
			return strconv.ParseInt(a.Value, 10, 48)
		}
	}
	return 0, fmt.Errorf("no attribute %s", name)
}
