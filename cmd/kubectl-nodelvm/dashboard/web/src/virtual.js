// A list of which only the visible rows exist. All heights are known beforehand, so a row is found by bisection.
import { useCallback, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

const overscan = 200; // pixels

export function useVirtual(heights, resized) {
  const element = useRef(null);
  const [view, setView] = useState({ top: 0, height: 800 });
  const offsets = useMemo(() => {
    const sums = [0];
    for (const height of heights) sums.push(sums[sums.length - 1] + height);
    return sums;
  }, [heights]);
  const measure = useCallback(() => {
    const { scrollTop, clientHeight, clientWidth } = element.current;
    resized?.((r) => (r.width === clientWidth && r.height === clientHeight ? r : { width: clientWidth, height: clientHeight }));
    setView((v) => (v.top === scrollTop && v.height === clientHeight ? v : { top: scrollTop, height: clientHeight }));
  }, []);
  useLayoutEffect(() => {
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element.current);
    return () => observer.disconnect();
  }, []);
  useLayoutEffect(measure, [heights]); // a shorter list moves the scroll position
  const first = Math.max(bisect(offsets, view.top - overscan) - 1, 0);
  const last = Math.min(bisect(offsets, view.top + view.height + overscan), heights.length);
  // reveal scrolls as little as possible until the row is visible.
  const reveal = (i) => {
    const { scrollTop, clientHeight } = element.current;
    if (offsets[i] < scrollTop) element.current.scrollTop = offsets[i];
    else if (offsets[i + 1] > scrollTop + clientHeight) element.current.scrollTop = offsets[i + 1] - clientHeight;
    measure();
  };
  return { element, onScroll: measure, offsets, first, last, total: offsets[heights.length], reveal };
}

// bisect returns the first index whose offset is at least at.
export function bisect(offsets, at) {
  let low = 0;
  let high = offsets.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (offsets[middle] < at) low = middle + 1;
    else high = middle;
  }
  return low;
}
