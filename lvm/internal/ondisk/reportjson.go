package ondisk

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"
)

// reportJSON is LVM's report in either of its JSON formats: `json` writes every value as a string, `json_std` (since 2.03.17)
// some numbers as numbers and lists as arrays.
type reportJSON struct {
	Report []reportGroup `json:"report"`
}

type reportGroup struct {
	VG    []reportVG    `json:"vg"`
	PV    []reportPV    `json:"pv"`
	LV    []reportLV    `json:"lv"`
	PVSeg []reportPVSeg `json:"pvseg"`
	Seg   []reportSeg   `json:"seg"`
}

type reportVG struct {
	UUID        word  `json:"vg_uuid"`
	Name        word  `json:"vg_name"`
	Tags        list  `json:"vg_tags"`
	Seqno       count `json:"vg_seqno"`
	ExtentSize  count `json:"vg_extent_size"`
	MDASize     count `json:"vg_mda_size"`
	MDAFree     count `json:"vg_mda_free"`
	Exported    count `json:"vg_exported"`
	Extendable  count `json:"vg_extendable"`
	Permissions word  `json:"vg_permissions"`
	Clustered   count `json:"vg_clustered"`
	Shared      count `json:"vg_shared"`
	LockType    word  `json:"vg_lock_type"`
	SystemID    word  `json:"vg_systemid"`
}

type reportPV struct {
	UUID        word  `json:"pv_uuid"`
	Name        word  `json:"pv_name"`
	Extents     count `json:"pv_pe_count"`
	Missing     count `json:"pv_missing"`
	Allocatable count `json:"pv_allocatable"`
	Start       count `json:"pe_start"`
	DeviceSize  count `json:"dev_size"`
}

type reportLV struct {
	UUID      word  `json:"lv_uuid"`
	Name      word  `json:"lv_name"` // in brackets if hidden
	Size      count `json:"lv_size"`
	Tags      list  `json:"lv_tags"`
	Created   stamp `json:"lv_time"`
	Origin    word  `json:"origin"`
	Pool      word  `json:"pool_lv"`
	Data      word  `json:"data_lv"`
	Metadata  word  `json:"metadata_lv"`
	MirrorLog word  `json:"mirror_log"`
}

type reportPVSeg struct {
	PV      word  `json:"pv_uuid"`
	Start   count `json:"pvseg_start"`
	Size    count `json:"pvseg_size"`
	Type    word  `json:"segtype"` // "free" for free extents
	LV      word  `json:"lv_uuid"`
	LVStart count `json:"seg_start_pe"`
}

type reportSeg struct {
	LV         word  `json:"lv_uuid"`
	Start      count `json:"seg_start_pe"`
	Extents    count `json:"seg_size_pe"`
	Type       word  `json:"segtype"`
	StripeSize count `json:"stripe_size"`
	RegionSize count `json:"region_size"`
	ChunkSize  count `json:"chunk_size"`
	Zero       truth `json:"zero"`
	Devices    list  `json:"devices"` // "/dev/sda(0)", "[r_rimage_0](0)"
	Metadata   list  `json:"metadata_devices"`
}

type word string

// count is a number of 0 or more, as a number or a string.
type count int64

// truth is a boolean: 1, 0, or -1 if it does not apply.
type truth bool

// stamp is a time in LVM's default format (lvm.conf, report/time_format), empty if unknown.
type stamp struct{ time.Time }

// list is a list of strings, as an array or joined by commas.
type list []string

func (c *count) UnmarshalJSON(p []byte) error {
	n, err := strconv.ParseInt(strings.Trim(string(p), `"`), 10, 64)
	if err == nil && n < 0 {
		err = errors.New("negative")
	}
	*c = count(n)
	return err
}

func (t *truth) UnmarshalJSON(p []byte) error {
	*t = strings.Trim(string(p), `"`) == "1"
	return nil
}

func (t *stamp) UnmarshalJSON(p []byte) error {
	text := strings.Trim(string(p), `"`)
	if text == "" || text == "null" {
		*t = stamp{}
		return nil
	}
	moment, err := time.Parse("2006-01-02 15:04:05 -0700", text)
	*t = stamp{moment.UTC()}
	return err
}

func (l *list) UnmarshalJSON(p []byte) error {
	*l = nil
	if len(p) > 0 && p[0] == '[' {
		if err := json.Unmarshal(p, (*[]string)(l)); err != nil || len(*l) > 0 {
			return err
		}
		*l = nil
		return nil
	}
	var joined string
	if err := json.Unmarshal(p, &joined); err != nil {
		return err
	}
	if joined != "" {
		*l = strings.Split(joined, ",")
	}
	return nil
}
