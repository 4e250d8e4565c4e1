# What a page of `report --html` is made of, as C++: style and scripts of src/report/page, and uPlot, which draws its
# charts. uPlot is sought in -DGPUFLIGHT_UPLOT=FOLDER, then where tools/setup.sh puts it; without it all builds, and
# --html says what is missing.
#
#   gpuflight_page_assets(target)   adds the generated source to the target
set(GPUFLIGHT_UPLOT "" CACHE PATH "Folder with uPlot.iife.min.js and uPlot.min.css (1.6.18)")

set(gpuflight_page_assets_script ${CMAKE_CURRENT_LIST_DIR}/embed_files.cmake)
set(gpuflight_uplot_js_hash addc030d2f1268dbee42ef31f7173b624b87443277163b04651490705dce7397)
set(gpuflight_uplot_css_hash 37d952f00df006ceab033267e05f050cedd8d6906467cc86525dee795dcfa6a9)

function(gpuflight_find_uplot out)
  set(${out} "" PARENT_SCOPE)
  foreach(folder IN ITEMS "${GPUFLIGHT_UPLOT}"
          ${PROJECT_SOURCE_DIR}/.deps/page/metaflow_extensions/card_uplot/plugins/cards/uplot/uplot)
    if(NOT folder OR NOT EXISTS ${folder}/uPlot.iife.min.js OR NOT EXISTS ${folder}/uPlot.min.css)
      continue()
    endif()
    file(SHA256 ${folder}/uPlot.iife.min.js js)
    file(SHA256 ${folder}/uPlot.min.css css)
    if(NOT js STREQUAL gpuflight_uplot_js_hash OR NOT css STREQUAL gpuflight_uplot_css_hash)
      message(WARNING "uPlot in ${folder} is not the 1.6.18 that is known: not used")
      continue()
    endif()
    message(STATUS "uPlot: ${folder}")
    set(${out} ${folder} PARENT_SCOPE)
    return()
  endforeach()
  message(STATUS "uPlot: not found, report --html is left out (tools/setup.sh fetches it)")
endfunction()

function(gpuflight_page_assets target)
  gpuflight_find_uplot(uplot)
  set(page ${CMAKE_CURRENT_SOURCE_DIR}/page)
  # NAME=FILE[,FILE...]; of uPlot nothing where it is not there.
  set(assets kPageBody=${page}/body.html kPageStyle=${page}/page.css
    kPageScript=${page}/page.js,${page}/kernels.js,${page}/occupancy.js,${page}/timeline.js,${page}/start.js
    kUplotLicence=${page}/uplot_licence.txt)
  if(uplot)
    list(APPEND assets kUplotScript=${uplot}/uPlot.iife.min.js kUplotStyle=${uplot}/uPlot.min.css)
  else()
    list(APPEND assets kUplotScript= kUplotStyle=)
  endif()
  string(REGEX REPLACE "[A-Za-z]+=|," ";" inputs "${assets}")
  list(FILTER inputs EXCLUDE REGEX "^$")
  set(output ${CMAKE_CURRENT_BINARY_DIR}/page_assets.cpp)
  add_custom_command(OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} "-DASSETS=${assets}" -DOUTPUT=${output} -P ${gpuflight_page_assets_script}
    DEPENDS ${inputs} ${gpuflight_page_assets_script} VERBATIM)
  target_sources(${target} PRIVATE ${output})
endfunction()
